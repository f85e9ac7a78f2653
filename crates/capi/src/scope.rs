//! What all calls share: the session, the group, the name and the settings.

#![expect(unsafe_code, reason = "options from C are read here")]

use std::time::Duration;

use carole_engine::{Call, Group};

use crate::memory::{out, reference, text};
use crate::options::{carole_options, options};
use crate::outcome::{Failure, border, carole_result};
use crate::request::{carole_request, give};
use crate::session::carole_session;
use crate::staged::{Direct, Plan, Staged};

/// A call's settings.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Settings {
    pub(crate) scale: Option<(f64, f64)>,
    pub(crate) timeout: Option<Duration>,
}

impl Settings {
    /// A call in `group` with these settings.
    #[inline]
    pub(crate) fn call<'a>(&self, group: &'a Group, name: Option<&'a str>) -> Call<'a> {
        let mut call = match name {
            Some(name) => group.named(name),
            None => group.call(),
        };
        if let Some((before, after)) = self.scale {
            call = call.scaled(before, after);
        }
        match self.timeout {
            Some(timeout) => call.timeout(timeout),
            None => call,
        }
    }
}

/// One call of C.
#[derive(Clone, Copy)]
pub(crate) struct Scope<'a> {
    pub(crate) session: &'a carole_session,
    pub(crate) group: &'a Group,
    pub(crate) name: Option<&'a str>,
    pub(crate) settings: Settings,
    operation: Operation,
}

/// Which operation a call is.
#[derive(Clone, Copy)]
pub(crate) struct Operation {
    /// What it is called in messages.
    pub(crate) name: &'static str,
    /// Whether it combines values, so that they can be scaled.
    pub(crate) reduces: bool,
}

impl Operation {
    /// One that combines values.
    pub(crate) const fn reducing(name: &'static str) -> Self {
        Self {
            name,
            reduces: true,
        }
    }

    /// One that only moves them.
    pub(crate) const fn moving(name: &'static str) -> Self {
        Self {
            name,
            reduces: false,
        }
    }
}

/// Runs the body of a blocking call.
///
/// # Safety
/// The session lives, the options have the size that they tell, and what they point to lives until
/// the call returns; or the pointers are NULL.
#[inline]
pub(crate) unsafe fn run(
    session: *const carole_session,
    options: *const carole_options,
    operation: Operation,
    body: impl FnOnce(Scope<'_>) -> Result<(), Failure>,
) -> carole_result {
    border(|| {
        // SAFETY: the caller's promise.
        let scope = unsafe { Scope::new(session, options, operation) }
            .map_err(|failure| failure.during(|| operation.name.to_owned()))?;
        body(scope).map_err(|failure| failure.during(|| scope.label()))
    })
}

/// Runs the body of a call that starts an operation; `request` becomes NULL if it fails.
///
/// # Safety
/// As for [`run`]; `request` is a place for the answer, or NULL.
pub(crate) unsafe fn start(
    session: *const carole_session,
    options: *const carole_options,
    request: *mut *mut carole_request,
    operation: Operation,
    body: impl FnOnce(Scope<'_>) -> Result<*mut carole_request, Failure>,
) -> carole_result {
    let body = |scope: Scope<'_>| {
        // SAFETY: the caller's promise.
        let request = unsafe { out(request, "request") }?;
        *request = std::ptr::null_mut();
        *request = body(scope)?;
        Ok(())
    };
    // SAFETY: the caller's promise.
    unsafe { run(session, options, operation, body) }
}

impl<'a> Scope<'a> {
    /// Reads the session and the options.
    ///
    /// # Safety
    /// The session lives, the options have the size that they tell, and what they point to lives,
    /// for `'a`; or the pointers are NULL.
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
        if options.scale.is_some() && !operation.reduces {
            return Err(Failure::invalid("only reductions can be scaled"));
        }
        let settings = Settings {
            scale: options.scale,
            timeout: options.timeout,
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
    pub(crate) fn call(&self) -> Call<'a> {
        self.settings.call(self.group, self.name)
    }

    /// How the operation is called in messages.
    fn label(&self) -> String {
        match self.name {
            Some(name) => format!("{} {name:?}", self.operation.name),
            None => self.operation.name.to_owned(),
        }
    }

    /// Runs a plan on this thread.
    pub(crate) fn run_plan(&self, plan: &impl Plan) -> Result<(), Failure> {
        plan.carry_out(self.group, self.name, self.settings, &Direct)
    }

    /// Runs a plan on a thread of its own. It needs a name: its parts are called later, when
    /// counting calls would no longer tell the same on every rank.
    pub(crate) fn start_plan(
        &self,
        plan: impl Plan + Send + 'static,
    ) -> Result<*mut carole_request, Failure> {
        let Some(name) = self.name else {
            return Err(Failure::invalid("it needs a name to be started"));
        };
        let staged = Staged::start(plan, self.group.clone(), name.to_owned(), self.settings)?;
        Ok(give(self.session, staged.into()))
    }

    /// Hands out a started operation.
    pub(crate) fn give(&self, handle: carole_engine::Handle) -> *mut carole_request {
        give(self.session, handle.into())
    }
}
