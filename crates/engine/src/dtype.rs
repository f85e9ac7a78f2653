//! Element types and reduce operations.

/// The type of a tensor's elements.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[repr(u8)]
pub enum DType {
    /// Unsigned 8-bit integer.
    U8 = 0,
    /// Unsigned 16-bit integer.
    U16 = 1,
    /// Unsigned 32-bit integer.
    U32 = 2,
    /// Unsigned 64-bit integer.
    U64 = 3,
    /// Signed 8-bit integer.
    I8 = 4,
    /// Signed 16-bit integer.
    I16 = 5,
    /// Signed 32-bit integer.
    I32 = 6,
    /// Signed 64-bit integer.
    I64 = 7,
    /// IEEE half precision.
    F16 = 8,
    /// bfloat16.
    Bf16 = 9,
    /// IEEE single precision.
    F32 = 10,
    /// IEEE double precision.
    F64 = 11,
    /// A boolean stored as one byte, zero or one.
    Bool = 12,
}

impl DType {
    /// Every element type, in the order of their numbers.
    pub const ALL: [Self; 13] = [
        Self::U8,
        Self::U16,
        Self::U32,
        Self::U64,
        Self::I8,
        Self::I16,
        Self::I32,
        Self::I64,
        Self::F16,
        Self::Bf16,
        Self::F32,
        Self::F64,
        Self::Bool,
    ];

    /// Bytes of one element.
    pub const fn size(self) -> usize {
        match self {
            Self::U8 | Self::I8 | Self::Bool => 1,
            Self::U16 | Self::I16 | Self::F16 | Self::Bf16 => 2,
            Self::U32 | Self::I32 | Self::F32 => 4,
            Self::U64 | Self::I64 | Self::F64 => 8,
        }
    }

    /// Whether elements are floating-point numbers.
    pub const fn is_float(self) -> bool {
        matches!(self, Self::F16 | Self::Bf16 | Self::F32 | Self::F64)
    }

    /// The type with this number, as it travels on the wire.
    pub fn from_u8(value: u8) -> Option<Self> {
        Self::ALL.get(usize::from(value)).copied()
    }

    /// The name people write: `f32`, `bf16`, `bool`.
    pub const fn name(self) -> &'static str {
        match self {
            Self::U8 => "u8",
            Self::U16 => "u16",
            Self::U32 => "u32",
            Self::U64 => "u64",
            Self::I8 => "i8",
            Self::I16 => "i16",
            Self::I32 => "i32",
            Self::I64 => "i64",
            Self::F16 => "f16",
            Self::Bf16 => "bf16",
            Self::F32 => "f32",
            Self::F64 => "f64",
            Self::Bool => "bool",
        }
    }
}

impl std::fmt::Display for DType {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(self.name())
    }
}

impl std::str::FromStr for DType {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let wanted = match text {
            "float16" | "half" => "f16",
            "bfloat16" => "bf16",
            "float32" | "float" => "f32",
            "float64" | "double" => "f64",
            other => other,
        };
        Self::ALL
            .into_iter()
            .find(|d| d.name() == wanted)
            .ok_or_else(|| format!("unknown element type {text:?}"))
    }
}

/// How the ranks' values of one element are combined.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[repr(u8)]
pub enum ReduceOp {
    /// The sum; for booleans, or.
    Sum = 0,
    /// The sum divided by the number of ranks (integers: rounded towards zero).
    Average = 1,
    /// The smallest; a NaN wins.
    Min = 2,
    /// The largest; a NaN wins.
    Max = 3,
    /// The product; for booleans, and.
    Product = 4,
    /// Bitwise and (integers and booleans).
    And = 5,
    /// Bitwise or (integers and booleans).
    Or = 6,
    /// Bitwise exclusive or (integers and booleans).
    Xor = 7,
}

impl ReduceOp {
    /// Every operation, in the order of their numbers.
    pub const ALL: [Self; 8] = [
        Self::Sum,
        Self::Average,
        Self::Min,
        Self::Max,
        Self::Product,
        Self::And,
        Self::Or,
        Self::Xor,
    ];

    /// The operation with this number, as it travels on the wire.
    pub fn from_u8(value: u8) -> Option<Self> {
        Self::ALL.get(usize::from(value)).copied()
    }

    /// The name people write.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Sum => "sum",
            Self::Average => "average",
            Self::Min => "min",
            Self::Max => "max",
            Self::Product => "product",
            Self::And => "and",
            Self::Or => "or",
            Self::Xor => "xor",
        }
    }

    /// Whether the operation is defined for elements of `dtype`.
    pub const fn applies_to(self, dtype: DType) -> bool {
        match self {
            Self::And | Self::Or | Self::Xor => !dtype.is_float(),
            Self::Average => !matches!(dtype, DType::Bool),
            _ => true,
        }
    }
}

impl std::fmt::Display for ReduceOp {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(self.name())
    }
}

impl std::str::FromStr for ReduceOp {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        Self::ALL
            .into_iter()
            .find(|op| op.name() == text)
            .ok_or_else(|| format!("unknown operation {text:?}"))
    }
}
