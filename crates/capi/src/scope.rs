//! What all calls share: the session, the group, the name and the settings.

#![expect(unsafe_code, reason = "options from C are read here")]

use std::sync::Arc;
use std::time::Duration;

use carole_engine::compress::Codec;
use carole_engine::{Call, Group, Prepared};
use carole_plan::{Topology, TopologyName};

use crate::memory::{array, index, out, reference, text};
use crate::options::{Options, carole_options, options};
use crate::outcome::{Failure, border, carole_result};
use crate::request::{Work, carole_request, give};
use crate::session::carole_session;
use crate::staged::{Direct, Plan, Staged};

/// A call's settings.
#[derive(Clone, Debug, Default)]
pub(crate) struct Settings {
    pub(crate) scale: Option<(f64, f64)>,
    pub(crate) timeout: Option<Duration>,
    pub(crate) codec: Codec,
    pub(crate) topology: Option<Arc<Topology>>,
}

impl Settings {
    /// A call in `group` with these settings.
    #[inline]
    pub(crate) fn call<'a>(&'a self, group: &'a Group, name: Option<&'a str>) -> Call<'a> {
        let mut call = match name {
            Some(name) => group.named(name),
            None => group.call(),
        };
        if let Some((before, after)) = self.scale {
            call = call.scaled(before, after);
        }
        if let Some(topology) = &self.topology {
            call = call.topology(topology);
        }
        call = call.compressed(self.codec);
        match self.timeout {
            Some(timeout) => call.timeout(timeout),
            None => call,
        }
    }
}

/// One call of C.
pub(crate) struct Scope<'a> {
    session: &'a carole_session,
    pub(crate) group: &'a Group,
    name: Option<&'a str>,
    pub(crate) settings: Settings,
    operation: Operation,
}

/// What a call comes to once its arguments have been checked: the same for its blocking and for its
/// started form.
#[expect(
    clippy::large_enum_variant,
    reason = "the large one is the common one, and lives briefly"
)]
pub(crate) enum Action<'a> {
    /// One operation of the engine.
    One(Prepared<'a>),
    /// Several, one after another.
    Several(Box<dyn Plan + Send>),
}

impl<'a> From<Prepared<'a>> for Action<'a> {
    #[inline]
    fn from(prepared: Prepared<'a>) -> Self {
        Self::One(prepared)
    }
}

/// Which operation a call is.
#[derive(Clone, Copy)]
pub(crate) struct Operation {
    /// What it is called in messages.
    name: &'static str,
    /// Whether it combines values, so that they can be scaled.
    reduces: bool,
    /// Whether it can be sent along a topology.
    follows: bool,
    /// Whether its values can be compressed.
    compresses: bool,
}

impl Operation {
    /// One that combines values.
    pub(crate) const fn reducing(name: &'static str) -> Self {
        Self {
            reduces: true,
            ..Self::moving(name)
        }
    }

    /// One that only moves them.
    pub(crate) const fn moving(name: &'static str) -> Self {
        Self {
            name,
            reduces: false,
            follows: false,
            compresses: false,
        }
    }

    /// The same, which can be sent along a topology.
    pub(crate) const fn following(self) -> Self {
        Self {
            follows: true,
            ..self
        }
    }

    /// The same, whose values can be compressed.
    pub(crate) const fn compressing(self) -> Self {
        Self {
            compresses: true,
            ..self
        }
    }

    /// Whether it can be told all this.
    #[inline]
    fn check(self, options: &Options) -> Result<(), Failure> {
        if options.scale.is_some() && !self.reduces {
            return Err(Failure::invalid("only reductions can be scaled"));
        }
        let follows = !options.topology.is_null() || !options.parents.is_null();
        if follows && !self.follows {
            return Err(Failure::invalid("no topology can be forced on it"));
        }
        if options.codec != Codec::None && !self.compresses {
            return Err(Failure::invalid("only all_reduce can be compressed"));
        }
        Ok(())
    }
}

/// Runs the body of a call: what it fails with begins with the operation.
///
/// # Safety
/// The session lives, the options have the size that they tell, and what they point to lives until
/// the call returns; or the pointers are NULL.
#[inline]
pub(crate) unsafe fn within(
    session: *const carole_session,
    options: *const carole_options,
    operation: Operation,
    body: impl for<'s> FnOnce(&'s Scope<'s>) -> Result<(), Failure>,
) -> carole_result {
    border(|| {
        // SAFETY: the caller's promise.
        let scope = unsafe { Scope::new(session, options, operation) }
            .map_err(|failure| failure.during(|| operation.name.to_owned()))?;
        body(&scope).map_err(|failure| failure.during(|| scope.label()))
    })
}

/// Prepares a call and runs it on this thread.
///
/// # Safety
/// As for [`within`].
#[inline]
pub(crate) unsafe fn run(
    session: *const carole_session,
    options: *const carole_options,
    operation: Operation,
    prepare: impl for<'s> FnOnce(&'s Scope<'s>) -> Result<Action<'s>, Failure>,
) -> carole_result {
    // SAFETY: the caller's promise.
    unsafe {
        within(session, options, operation, |scope| match prepare(scope)? {
            Action::One(prepared) => Ok(prepared.run()?),
            Action::Several(plan) => {
                plan.carry_out(scope.group, scope.name, &scope.settings, &Direct)
            }
        })
    }
}

/// Prepares a call and starts it; `request` becomes NULL if that fails.
///
/// # Safety
/// As for [`within`]; `request` is a place for the answer, or NULL.
pub(crate) unsafe fn start(
    session: *const carole_session,
    options: *const carole_options,
    request: *mut *mut carole_request,
    operation: Operation,
    prepare: impl for<'s> FnOnce(&'s Scope<'s>) -> Result<Action<'s>, Failure>,
) -> carole_result {
    // SAFETY: the caller's promise.
    let place = unsafe { out(request, "request") }.map(|place| {
        *place = std::ptr::null_mut();
        place
    });
    // SAFETY: the caller's promise.
    unsafe {
        within(session, options, operation, |scope| {
            let place = place?;
            let work = match prepare(scope)? {
                Action::One(prepared) => Work::One(prepared.start()?),
                Action::Several(plan) => Work::Staged(scope.stage(plan)?),
            };
            *place = give(scope.session, work);
            Ok(())
        })
    }
}

impl Scope<'_> {
    /// Reads the session and the options.
    ///
    /// # Safety
    /// The session lives, the options have the size that they tell, and what they point to lives as
    /// long as the scope; or the pointers are NULL.
    #[inline]
    unsafe fn new(
        session: *const carole_session,
        given: *const carole_options,
        operation: Operation,
    ) -> Result<Self, Failure> {
        // SAFETY: the caller's promise.
        let session = unsafe { reference(session, "session") }?;
        // SAFETY: the caller's promise.
        let options = unsafe { options(given) }?;
        let name = if options.name.is_null() {
            None
        } else {
            // SAFETY: the caller's promise.
            Some(unsafe { text(options.name, "carole_options.name") }?)
        };
        let group = if options.group.is_null() {
            &session.world
        } else {
            // SAFETY: the caller's promise.
            let group = unsafe { reference(options.group, "carole_options.group") }?;
            if group.session != session.identity() {
                return Err(Failure::invalid(
                    "carole_options.group belongs to another session",
                ));
            }
            &group.group
        };
        operation.check(&options)?;
        let settings = Settings {
            scale: options.scale,
            timeout: options.timeout,
            codec: options.codec,
            // SAFETY: the caller's promise.
            topology: unsafe { topology(session, group, &options) }?,
        };
        Ok(Self {
            session,
            group,
            name,
            settings,
            operation,
        })
    }

    #[inline]
    pub(crate) fn call(&self) -> Call<'_> {
        self.settings.call(self.group, self.name)
    }

    /// How the operation is called in messages.
    fn label(&self) -> String {
        match self.name {
            Some(name) => format!("{} {name:?}", self.operation.name),
            None => self.operation.name.to_owned(),
        }
    }

    /// Runs a plan on a thread of its own. It needs a name: its parts are called later, when
    /// counting calls would no longer tell the same on every rank.
    fn stage(&self, plan: Box<dyn Plan + Send>) -> Result<Staged, Failure> {
        let Some(name) = self.name else {
            return Err(Failure::invalid("it needs a name to be started"));
        };
        let settings = self.settings.clone();
        Staged::start(plan, self.group.clone(), name.to_owned(), settings)
    }
}

/// The topology that a call asks for.
///
/// # Safety
/// The options' pointers are NULL, or point to what the header says.
#[inline]
unsafe fn topology(
    session: &carole_session,
    group: &Group,
    options: &Options,
) -> Result<Option<Arc<Topology>>, Failure> {
    match (options.topology.is_null(), options.parents.is_null()) {
        (true, true) => Ok(None),
        (false, true) => {
            // SAFETY: the caller's promise.
            let name = unsafe { text(options.topology, "carole_options.topology") }?;
            let name: TopologyName = name.parse().map_err(no_topology)?;
            Ok(Some(session.topology(group, name)?))
        }
        (true, false) => {
            // SAFETY: the caller's array has one element a member.
            let parents =
                unsafe { array(options.parents, group.size(), "carole_options.parents") }?;
            let parents: Vec<usize> = parents
                .iter()
                .map(|parent| index(*parent, "a parent"))
                .collect::<Result<_, _>>()?;
            let topology = Topology::from_parents(&parents).map_err(no_topology)?;
            Ok(Some(Arc::new(topology)))
        }
        (false, false) => Err(Failure::invalid(
            "carole_options has both a topology and parents",
        )),
    }
}

/// Why a topology cannot be made.
#[expect(clippy::needless_pass_by_value, reason = "for map_err")]
pub(crate) fn no_topology(error: carole_plan::PlanError) -> Failure {
    Failure::invalid(format!("carole_options: {error}"))
}
