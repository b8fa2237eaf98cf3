//! Access to the fields of an event while it is serialized, so that no copy of the whole event is built.

use std::fmt::Display;

use serde::ser::{Error as _, Impossible, Serialize, SerializeMap, SerializeStruct, Serializer};
use serde_json::{Error, Value};

/// A receiver of the fields of an event, in the order of their serialization.
pub(crate) trait FieldVisitor {
    fn visit_field<T: Serialize + ?Sized>(&mut self, name: &str, value: &T) -> Result<(), Error>;
}

/// Passes each field of an event to the visitor.
///
/// # Errors
/// The first error of the visitor, and an error for a value that is not serialized as an object.
pub(crate) fn visit_fields<E: Serialize, V: FieldVisitor>(event: &E, visitor: &mut V) -> Result<(), Error> {
    event.serialize(EventSerializer(visitor))
}

struct EventSerializer<'v, V>(&'v mut V);

/// The serializer of an event's fields if the event is serialized as a map: passes each field to the visitor.
struct MapFields<'v, V> {
    visitor: &'v mut V,
    name: String,
}

fn no_object() -> Error {
    Error::custom("an event is an object")
}

/// Implements the serializer's methods for values that are not objects: each method fails.
macro_rules! refuse {
    ($($method:ident($($kind:ty),*);)*) => {
        $(fn $method(self, $(_: $kind),*) -> Result<(), Error> {
            Err(no_object())
        })*
    };
}

impl<'v, V: FieldVisitor> Serializer for EventSerializer<'v, V> {
    type Ok = ();
    type Error = Error;
    type SerializeSeq = Impossible<(), Error>;
    type SerializeTuple = Impossible<(), Error>;
    type SerializeTupleStruct = Impossible<(), Error>;
    type SerializeTupleVariant = Impossible<(), Error>;
    type SerializeMap = MapFields<'v, V>;
    type SerializeStruct = Self;
    type SerializeStructVariant = Impossible<(), Error>;

    refuse! {
        serialize_bool(bool);
        serialize_i8(i8);
        serialize_i16(i16);
        serialize_i32(i32);
        serialize_i64(i64);
        serialize_u8(u8);
        serialize_u16(u16);
        serialize_u32(u32);
        serialize_u64(u64);
        serialize_f32(f32);
        serialize_f64(f64);
        serialize_char(char);
        serialize_str(&str);
        serialize_bytes(&[u8]);
        serialize_none();
        serialize_unit();
        serialize_unit_struct(&'static str);
        serialize_unit_variant(&'static str, u32, &'static str);
    }

    fn serialize_some<T: Serialize + ?Sized>(self, value: &T) -> Result<(), Error> {
        value.serialize(self)
    }

    fn serialize_newtype_struct<T: Serialize + ?Sized>(self, _: &'static str, value: &T) -> Result<(), Error> {
        value.serialize(self)
    }

    fn serialize_newtype_variant<T: Serialize + ?Sized>(
        self,
        _: &'static str,
        _: u32,
        _: &'static str,
        _: &T,
    ) -> Result<(), Error> {
        Err(no_object())
    }

    fn serialize_seq(self, _: Option<usize>) -> Result<Self::SerializeSeq, Error> {
        Err(no_object())
    }

    fn serialize_tuple(self, _: usize) -> Result<Self::SerializeTuple, Error> {
        Err(no_object())
    }

    fn serialize_tuple_struct(self, _: &'static str, _: usize) -> Result<Self::SerializeTupleStruct, Error> {
        Err(no_object())
    }

    fn serialize_tuple_variant(
        self,
        _: &'static str,
        _: u32,
        _: &'static str,
        _: usize,
    ) -> Result<Self::SerializeTupleVariant, Error> {
        Err(no_object())
    }

    fn serialize_map(self, _: Option<usize>) -> Result<Self::SerializeMap, Error> {
        Ok(MapFields { visitor: self.0, name: String::new() })
    }

    fn serialize_struct(self, _: &'static str, _: usize) -> Result<Self::SerializeStruct, Error> {
        Ok(self)
    }

    fn serialize_struct_variant(
        self,
        _: &'static str,
        _: u32,
        _: &'static str,
        _: usize,
    ) -> Result<Self::SerializeStructVariant, Error> {
        Err(no_object())
    }

    fn collect_str<T: Display + ?Sized>(self, _: &T) -> Result<(), Error> {
        Err(no_object())
    }
}

impl<V: FieldVisitor> SerializeStruct for EventSerializer<'_, V> {
    type Ok = ();
    type Error = Error;

    fn serialize_field<T: Serialize + ?Sized>(&mut self, name: &'static str, value: &T) -> Result<(), Error> {
        self.0.visit_field(name, value)
    }

    fn end(self) -> Result<(), Error> {
        Ok(())
    }
}

impl<V: FieldVisitor> SerializeMap for MapFields<'_, V> {
    type Ok = ();
    type Error = Error;

    fn serialize_key<T: Serialize + ?Sized>(&mut self, key: &T) -> Result<(), Error> {
        let Value::String(name) = serde_json::to_value(key)? else { return Err(no_object()) };
        self.name = name;
        Ok(())
    }

    fn serialize_value<T: Serialize + ?Sized>(&mut self, value: &T) -> Result<(), Error> {
        self.visitor.visit_field(&self.name, value)
    }

    fn end(self) -> Result<(), Error> {
        Ok(())
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used, reason = "tests")]
mod tests {
    use serde_json::Map;

    use super::*;
    use crate::event::{EventBody, SessionNamed};

    #[derive(Default)]
    struct Fields(Map<String, Value>);

    impl FieldVisitor for Fields {
        fn visit_field<T: Serialize + ?Sized>(&mut self, name: &str, value: &T) -> Result<(), Error> {
            self.0.insert(name.to_owned(), serde_json::to_value(value)?);
            Ok(())
        }
    }

    #[test]
    fn visited_fields_are_the_fields_of_the_object() {
        let event = EventBody::Named(SessionNamed { name: "n".into() });
        for value in [serde_json::to_value(&event).unwrap(), serde_json::json!({"a": [1], "b": {"c": null}})] {
            let mut fields = Fields::default();
            visit_fields(&value, &mut fields).unwrap();
            assert_eq!(Value::Object(fields.0), value);
        }
        let mut fields = Fields::default();
        visit_fields(&event, &mut fields).unwrap();
        assert_eq!(Value::Object(fields.0), serde_json::to_value(&event).unwrap());
        for value in [Value::Null, serde_json::json!([1]), serde_json::json!("text")] {
            assert!(visit_fields(&value, &mut Fields::default()).is_err());
        }
    }
}
