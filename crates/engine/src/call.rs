//! The typed calls of a group.

#![expect(unsafe_code, reason = "slices become raw spans for as long as a call borrows them")]

use std::sync::Arc;
use std::time::Duration;

use crate::descriptor::Kind;
use crate::dtype::{DType, ReduceOp};
use crate::error::{Error, Result};
use crate::group::SharedGroup;
use crate::kernels::Scale;
use crate::local::transfer::Parts;
use crate::operation::{Label, Operation, Request};
use crate::session::Inner;
use crate::span::Span;

/// A type that tensors are made of.
///
/// # Safety
/// The type must be plain data of `DTYPE`'s size for which any bytes are valid.
pub unsafe trait Element: Copy + Send + 'static {
    /// Its number on the wire.
    const DTYPE: DType;
}

macro_rules! elements {
    ($($type:ty => $dtype:ident),* $(,)?) => {$(
        // SAFETY: a number of that size, valid for any bytes.
        unsafe impl Element for $type { const DTYPE: DType = DType::$dtype; }
    )*};
}

elements! {
    u8 => U8, u16 => U16, u32 => U32, u64 => U64, i8 => I8, i16 => I16, i32 => I32, i64 => I64,
    half::f16 => F16, half::bf16 => Bf16, f32 => F32, f64 => F64,
}

/// An ordered subset of a session's ranks, on which collectives are called.
#[derive(Clone)]
pub struct Group {
    pub(crate) inner: Arc<Inner>,
    pub(crate) group: SharedGroup,
}

impl Group {
    /// This process's place in the group.
    pub fn rank(&self) -> usize {
        self.group.me
    }

    /// How many members there are.
    pub fn size(&self) -> usize {
        self.group.size()
    }

    /// A call with settings of its own.
    pub fn call(&self) -> Call<'_> {
        Call { group: self, name: None, scale: Scale::NONE, timeout: self.inner.options.timeout }
    }

    /// A call under a name: matched by it, in whatever order the ranks get there.
    pub fn named<'a>(&'a self, name: &'a str) -> Call<'a> {
        Call { name: Some(name), ..self.call() }
    }
}

/// One call and its settings.
#[derive(Clone, Copy)]
pub struct Call<'a> {
    group: &'a Group,
    name: Option<&'a str>,
    scale: Scale,
    timeout: Duration,
}

impl Call<'_> {
    /// Multiplies the values before and the result after they are combined.
    #[must_use]
    pub fn scaled(mut self, before: f64, after: f64) -> Self {
        self.scale = Scale { before, after };
        self
    }

    /// Fails when it takes longer than this.
    #[must_use]
    pub fn timeout(mut self, timeout: Duration) -> Self {
        self.timeout = timeout;
        self
    }

    fn run(&self, request: &Request) -> Result<()> {
        let Group { inner, group } = self.group;
        inner.check_usable()?;
        let (key, sequence) = group.key(self.name);
        let label = Label { kind: request.kind, name: self.name, sequence };
        let mut operation = Operation::new(inner, group, key, request);
        inner.drive(group, &mut operation, label, self.timeout)
    }

    fn request<T: Element>(&self, kind: Kind, send: Span, recv: Span, count: usize) -> Request {
        Request {
            kind,
            dtype: T::DTYPE,
            op: ReduceOp::Sum,
            scale: self.scale,
            root: 0,
            count: count as u64,
            send,
            recv,
            send_parts: Parts::None,
            recv_parts: Parts::None,
            settings: 0,
        }
    }

    /// Everybody waits for everybody.
    pub fn barrier(&self) -> Result<()> {
        self.run(&self.request::<u8>(Kind::Barrier, Span::EMPTY, Span::EMPTY, 0))
    }

    /// Combines the values of all members in place.
    pub fn all_reduce<T: Element>(&self, tensor: &mut [T], op: ReduceOp) -> Result<()> {
        self.check_op(Kind::AllReduce, T::DTYPE, op)?;
        let span = mutable(tensor);
        let request = self.request::<T>(Kind::AllReduce, span, span, tensor.len());
        self.run(&Request { op, ..request })
    }

    fn check_op(&self, kind: Kind, dtype: DType, op: ReduceOp) -> Result<()> {
        let problem = if !op.applies_to(dtype) {
            format!("{op} is not defined for {dtype}")
        } else if self.scale != Scale::NONE && !dtype.is_float() {
            format!("scaling is not defined for {dtype}")
        } else {
            return Ok(());
        };
        Err(Error::Invalid {
            operation: Label { kind, name: self.name, sequence: 0 }.to_string(),
            problem,
        })
    }
}

fn mutable<T>(tensor: &mut [T]) -> Span {
    Span::one(tensor.as_mut_ptr().cast(), size_of_val(tensor))
}
