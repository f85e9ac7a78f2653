//! From a tree to a value, through serde.

use serde::de::value::StrDeserializer;
use serde::de::{
    Deserialize, DeserializeSeed, Deserializer, Error as _, IntoDeserializer, MapAccess, SeqAccess,
    Unexpected, Visitor,
};
use serde::forward_to_deserialize_any;

use super::path::Step;
use super::scalar::Meaning;
use super::tree::{Entry, Value};
use super::{Fault, Node};

/// Reads a value from a document.
pub(crate) fn read<'de, T: Deserialize<'de>>(root: &'de Node) -> Result<T, Fault> {
    T::deserialize(root).map_err(|fault| fault.at(root))
}

impl<'de> Deserializer<'de> for &'de Node {
    type Error = Fault;

    fn deserialize_any<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, Fault> {
        match &self.value {
            Value::List(items) => visitor.visit_seq(Items {
                items: items.iter().enumerate(),
            }),
            Value::Mapping(entries) => visitor.visit_map(Entries {
                entries: entries.iter(),
                current: None,
            }),
            Value::Scalar { text, meaning } => match *meaning {
                Meaning::Nothing => visitor.visit_unit(),
                Meaning::Bool(value) => visitor.visit_bool(value),
                Meaning::Unsigned(number) => visitor.visit_u64(number),
                Meaning::Negative(number) => visitor.visit_i64(number),
                Meaning::Fraction(number) => visitor.visit_f64(number),
                Meaning::Text => visitor.visit_borrowed_str(text),
            },
        }
    }

    /// Serde would read the fields of a list in their order; people write names.
    fn deserialize_struct<V: Visitor<'de>>(
        self,
        _name: &'static str,
        _fields: &'static [&'static str],
        visitor: V,
    ) -> Result<V::Value, Fault> {
        match &self.value {
            Value::Mapping(_) => self.deserialize_any(visitor),
            _ => Err(Fault::invalid_type(
                Unexpected::Other("no mapping"),
                &"a map",
            )),
        }
    }

    fn deserialize_option<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, Fault> {
        if self.is_nothing() {
            visitor.visit_none()
        } else {
            visitor.visit_some(self)
        }
    }

    fn deserialize_newtype_struct<V: Visitor<'de>>(
        self,
        _name: &'static str,
        visitor: V,
    ) -> Result<V::Value, Fault> {
        visitor.visit_newtype_struct(self)
    }

    fn deserialize_enum<V: Visitor<'de>>(
        self,
        _name: &'static str,
        variants: &'static [&'static str],
        visitor: V,
    ) -> Result<V::Value, Fault> {
        match &self.value {
            Value::Scalar {
                text,
                meaning: Meaning::Text,
            } => visitor.visit_enum(IntoDeserializer::<Fault>::into_deserializer(text.as_str())),
            _ => Err(Fault::invalid_type(
                Unexpected::Other("no name"),
                &crate::error::one_of(variants).as_str(),
            )),
        }
    }

    forward_to_deserialize_any! {
        bool i8 i16 i32 i64 i128 u8 u16 u32 u64 u128 f32 f64 char str string bytes byte_buf unit
        unit_struct seq tuple tuple_struct map identifier ignored_any
    }
}

struct Items<'de> {
    items: std::iter::Enumerate<std::slice::Iter<'de, Node>>,
}

impl<'de> SeqAccess<'de> for Items<'de> {
    type Error = Fault;

    fn next_element_seed<T: DeserializeSeed<'de>>(
        &mut self,
        seed: T,
    ) -> Result<Option<T::Value>, Fault> {
        let Some((index, node)) = self.items.next() else {
            return Ok(None);
        };
        seed.deserialize(node)
            .map(Some)
            .map_err(|fault| fault.at(node).under(Step::Index(index)))
    }
}

struct Entries<'de> {
    entries: std::slice::Iter<'de, Entry>,
    /// The entry whose key was asked for last.
    current: Option<&'de Entry>,
}

impl<'de> MapAccess<'de> for Entries<'de> {
    type Error = Fault;

    fn next_key_seed<K: DeserializeSeed<'de>>(
        &mut self,
        seed: K,
    ) -> Result<Option<K::Value>, Fault> {
        let Some(entry) = self.entries.next() else {
            return Ok(None);
        };
        self.current = Some(entry);
        let key: StrDeserializer<'_, Fault> = entry.key.as_str().into_deserializer();
        seed.deserialize(key)
            .map(Some)
            .map_err(|fault| fault.of_key(entry).under(Step::Key(entry.key.clone())))
    }

    fn next_value_seed<V: DeserializeSeed<'de>>(&mut self, seed: V) -> Result<V::Value, Fault> {
        let Some(entry) = self.current.take() else {
            return Err(Fault::custom("a value was asked for before its key"));
        };
        let node = &entry.node;
        seed.deserialize(node)
            .map_err(|fault| fault.at(node).under(Step::Key(entry.key.clone())))
    }
}
