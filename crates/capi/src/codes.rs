//! Element types, reduce operations, transports and other choices as C's numbers.
//!
//! The enums are for the header. A number that arrives may be none of them, so functions take
//! plain numbers and look them up.

#![expect(non_camel_case_types, reason = "the names are C's")]

use carole_engine::compress::Codec;
use carole_engine::{DType, ReduceOp, Transport};

use crate::outcome::Failure;

/// The type of a tensor's elements. A buffer must be aligned to the size of its type.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(C)]
pub enum carole_dtype {
    /// uint8_t
    CAROLE_U8 = 0,
    /// uint16_t
    CAROLE_U16 = 1,
    /// uint32_t
    CAROLE_U32 = 2,
    /// uint64_t
    CAROLE_U64 = 3,
    /// int8_t
    CAROLE_I8 = 4,
    /// int16_t
    CAROLE_I16 = 5,
    /// int32_t
    CAROLE_I32 = 6,
    /// int64_t
    CAROLE_I64 = 7,
    /// IEEE half precision; sums are accumulated in single precision
    CAROLE_F16 = 8,
    /// bfloat16; sums are accumulated in single precision
    CAROLE_BF16 = 9,
    /// float
    CAROLE_F32 = 10,
    /// double
    CAROLE_F64 = 11,
    /// One byte, 0 or 1
    CAROLE_BOOL = 12,
}

/// A type as it arrives from C, where it may be any number.
pub type carole_dtype_number = u32;

/// How the ranks' values of one element are combined.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(C)]
pub enum carole_op {
    /// The sum; for CAROLE_BOOL, or.
    CAROLE_SUM = 0,
    /// The sum divided by the number of ranks (integers: rounded towards zero). Not for
    /// CAROLE_BOOL.
    CAROLE_AVERAGE = 1,
    /// The smallest; a NaN wins.
    CAROLE_MIN = 2,
    /// The largest; a NaN wins.
    CAROLE_MAX = 3,
    /// The product; for CAROLE_BOOL, and.
    CAROLE_PRODUCT = 4,
    /// Bitwise and; integers and CAROLE_BOOL.
    CAROLE_AND = 5,
    /// Bitwise or; integers and CAROLE_BOOL.
    CAROLE_OR = 6,
    /// Bitwise exclusive or; integers and CAROLE_BOOL.
    CAROLE_XOR = 7,
}

/// An operation as it arrives from C, where it may be any number.
pub type carole_op_number = u32;

/// How ranks of one host reach one another.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(C)]
pub enum carole_transport {
    /// What CAROLE_TRANSPORT says, or else CAROLE_TRANSPORT_AUTO.
    CAROLE_TRANSPORT_DEFAULT = 0,
    /// Shared memory inside a host, TCP across.
    CAROLE_TRANSPORT_AUTO = 1,
    /// TCP everywhere.
    CAROLE_TRANSPORT_TCP = 2,
}

/// A transport as it arrives from C, where it may be any number.
pub type carole_transport_number = u32;

/// Whether data between hosts is encrypted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(C)]
pub enum carole_tls {
    /// What CAROLE_TLS says, or else CAROLE_TLS_OFF.
    CAROLE_TLS_DEFAULT = 0,
    /// TLS 1.3 on all TCP connections for data. All ranks must use it, or none.
    CAROLE_TLS_ON = 1,
    /// In the clear.
    CAROLE_TLS_OFF = 2,
}

/// A choice of TLS as it arrives from C, where it may be any number.
pub type carole_tls_number = u32;

/// How values travel between hosts: in fewer bytes, at the price of a bounded error. Inside a host
/// nothing is compressed. All ranks get the same bits.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(C)]
pub enum carole_compression {
    /// As they are.
    CAROLE_COMPRESSION_NONE = 0,
    /// As IEEE half precision: 2 bytes a value. Infinite from 65520 on.
    CAROLE_COMPRESSION_F16 = 1,
    /// As bfloat16: 2 bytes a value.
    CAROLE_COMPRESSION_BF16 = 2,
    /// As one byte a value, with a scale for each 256 of them.
    CAROLE_COMPRESSION_INT8 = 3,
}

/// A compression as it arrives from C, where it may be any number.
pub type carole_compression_number = u32;

/// The element type with this number.
#[inline]
pub(crate) fn dtype(number: carole_dtype_number) -> Result<DType, Failure> {
    u8::try_from(number)
        .ok()
        .and_then(DType::from_u8)
        .ok_or_else(|| Failure::invalid(format!("{number} is not a carole_dtype")))
}

/// The operation with this number.
#[inline]
pub(crate) fn op(number: carole_op_number) -> Result<ReduceOp, Failure> {
    u8::try_from(number)
        .ok()
        .and_then(ReduceOp::from_u8)
        .ok_or_else(|| Failure::invalid(format!("{number} is not a carole_op")))
}

/// The transport with this number; `None` for the default.
pub(crate) fn transport(number: carole_transport_number) -> Result<Option<Transport>, Failure> {
    use carole_transport::{CAROLE_TRANSPORT_AUTO, CAROLE_TRANSPORT_TCP};
    match number {
        0 => Ok(None),
        number if number == CAROLE_TRANSPORT_AUTO as u32 => Ok(Some(Transport::Auto)),
        number if number == CAROLE_TRANSPORT_TCP as u32 => Ok(Some(Transport::Tcp)),
        number => Err(Failure::invalid(format!(
            "{number} is not a carole_transport"
        ))),
    }
}

/// Whether to use TLS; `None` for the default.
pub(crate) fn tls(number: carole_tls_number) -> Result<Option<bool>, Failure> {
    use carole_tls::{CAROLE_TLS_OFF, CAROLE_TLS_ON};
    match number {
        0 => Ok(None),
        number if number == CAROLE_TLS_ON as u32 => Ok(Some(true)),
        number if number == CAROLE_TLS_OFF as u32 => Ok(Some(false)),
        number => Err(Failure::invalid(format!("{number} is not a carole_tls"))),
    }
}

/// The compression with this number.
#[inline]
pub(crate) fn compression(number: carole_compression_number) -> Result<Codec, Failure> {
    u8::try_from(number)
        .ok()
        .and_then(Codec::from_u8)
        .ok_or_else(|| Failure::invalid(format!("{number} is not a carole_compression")))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_headers_numbers_are_the_engines() {
        use carole_dtype as c;
        for (here, engine) in [
            (c::CAROLE_U8, DType::U8),
            (c::CAROLE_U16, DType::U16),
            (c::CAROLE_U32, DType::U32),
            (c::CAROLE_U64, DType::U64),
            (c::CAROLE_I8, DType::I8),
            (c::CAROLE_I16, DType::I16),
            (c::CAROLE_I32, DType::I32),
            (c::CAROLE_I64, DType::I64),
            (c::CAROLE_F16, DType::F16),
            (c::CAROLE_BF16, DType::Bf16),
            (c::CAROLE_F32, DType::F32),
            (c::CAROLE_F64, DType::F64),
            (c::CAROLE_BOOL, DType::Bool),
        ] {
            assert_eq!(dtype(here as u32).unwrap(), engine);
        }
        use carole_op as o;
        for (here, engine) in [
            (o::CAROLE_SUM, ReduceOp::Sum),
            (o::CAROLE_AVERAGE, ReduceOp::Average),
            (o::CAROLE_MIN, ReduceOp::Min),
            (o::CAROLE_MAX, ReduceOp::Max),
            (o::CAROLE_PRODUCT, ReduceOp::Product),
            (o::CAROLE_AND, ReduceOp::And),
            (o::CAROLE_OR, ReduceOp::Or),
            (o::CAROLE_XOR, ReduceOp::Xor),
        ] {
            assert_eq!(op(here as u32).unwrap(), engine);
        }
        use carole_compression as z;
        for (here, engine) in [
            (z::CAROLE_COMPRESSION_NONE, Codec::None),
            (z::CAROLE_COMPRESSION_F16, Codec::F16),
            (z::CAROLE_COMPRESSION_BF16, Codec::Bf16),
            (z::CAROLE_COMPRESSION_INT8, Codec::Int8),
        ] {
            assert_eq!(compression(here as u32).unwrap(), engine);
        }
    }

    #[test]
    fn numbers_that_mean_nothing_are_refused() {
        for number in [13, 256 + 10, u32::MAX] {
            assert!(dtype(number).is_err());
        }
        for number in [8, 256, u32::MAX] {
            assert!(op(number).is_err());
        }
        assert!(transport(3).is_err());
        assert!(tls(3).is_err());
        assert!(compression(4).is_err() && compression(256).is_err());
    }
}
