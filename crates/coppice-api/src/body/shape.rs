//! What a value may look like, read from the schema that the document shows.
//!
//! So a bound is said once, beside the field it belongs to. A schema that
//! leaves something without a bound has no shape: no operation can take it.

use std::collections::BTreeMap;

use coppice_core::Result;
use serde_json::{Map, Value};
use utoipa::openapi::Required;
use utoipa::openapi::path::Parameter;
use utoipa::openapi::schema::{AdditionalProperties, ArrayItems, SchemaFormat, SchemaType, Type};
use utoipa::openapi::{Object, OneOf, RefOr, Schema};
use utoipa::{Number, ToSchema};

use super::format::Format;
use super::length::Length;
use super::place::Place;

/// Most bytes, as JSON, of an object whose values can be anything.
const FREE_BYTES_MAX: usize = 16 << 10;

/// What a value may look like.
#[derive(Debug)]
pub(crate) enum Shape {
    /// A text of some form.
    Formatted(&'static Format, Length),
    /// A text of some length.
    Text(Length),
    /// One of these.
    Word(Vec<String>),
    /// True or false.
    Flag,
    /// A whole number, from and to.
    Whole(u64, u64),
    /// A number, from and to.
    Number(f64, f64),
    /// So many of them, at least and at most.
    List(Box<Shape>, usize, usize),
    /// So many of them at most, by names that may be bounded, too.
    Map(Box<Shape>, Option<Box<Shape>>, usize),
    /// So many values of any kind at most, by name, and only so many bytes of them.
    Free(usize),
    /// Fields, in the order in which they are looked at. Others are ignored.
    Object(Vec<Field>),
    /// All of these at once.
    All(Vec<Shape>),
    /// Fields by what this one says.
    Tagged(String, Vec<(String, Vec<Field>)>),
}

/// A field of an object; null is the same as absent.
#[derive(Debug)]
pub(crate) struct Field {
    /// Its name.
    pub(crate) name: String,
    is_required: bool,
    /// What it may look like.
    pub(crate) shape: Shape,
}

/// Why a schema has no shape.
pub(crate) type Unbounded = String;

impl Shape {
    /// The shape of a type.
    ///
    /// # Errors
    /// Names what has no bound.
    pub(crate) fn of<T: ToSchema>() -> Result<Self, Unbounded> {
        let mut schemas = vec![];
        T::schemas(&mut schemas);
        Schemas(schemas.into_iter().collect()).shape(&T::schema(), &T::name())
    }

    /// The shape of a query's parameters.
    ///
    /// # Errors
    /// Names what has no bound.
    pub(crate) fn of_query(parameters: &[Parameter]) -> Result<Self, Unbounded> {
        let schemas = Schemas(BTreeMap::new());
        let field = |parameter: &Parameter| {
            let schema = parameter.schema.as_ref().ok_or_else(|| format!("{}: no schema", parameter.name))?;
            let shape = schemas.shape(schema, &parameter.name)?;
            let is_required = parameter.required == Required::True;
            Ok(Field { name: parameter.name.clone(), is_required, shape })
        };
        parameters.iter().map(field).collect::<Result<_, _>>().map(Self::Object)
    }

    /// Whether nothing is asked for.
    pub(crate) const fn nothing() -> Self {
        Self::Object(vec![])
    }

    /// Looks at a value, and puts its texts right.
    ///
    /// # Errors
    /// The first thing that is wrong, with its place.
    pub(crate) fn check(&self, value: &mut Value, place: &Place<'_>) -> Result<()> {
        match (self, value) {
            (Self::Formatted(format, length), Value::String(text)) => format.check(text, length, place),
            (Self::Text(length), Value::String(text)) => length.check(text, place),
            (Self::Word(words), Value::String(text)) if words.contains(text) => Ok(()),
            (Self::Word(words), Value::String(_)) => Err(place.invalid(one_of(words))),
            (Self::Flag, Value::Bool(_)) => Ok(()),
            (Self::Whole(min, max), value) => {
                // One with a fraction or an exponent is none, whatever it comes to.
                let number = value.as_u64();
                match number {
                    Some(number) if (*min..=*max).contains(&number) => Ok(()),
                    _ => Err(place.invalid(format_args!("must be a whole number from {min} to {max}"))),
                }
            }
            (Self::Number(min, max), value) => match value.as_f64() {
                Some(number) if (*min..=*max).contains(&number) => Ok(()),
                _ => Err(place.invalid(format_args!("must be a number from {min} to {max}"))),
            },
            (Self::List(_, _, count_max), Value::Array(items)) if items.len() > *count_max => {
                Err(place.too_many(*count_max))
            }
            (Self::List(_, count_min, _), Value::Array(items)) if items.len() < *count_min => {
                Err(place.invalid(format_args!("must have at least {count_min} items")))
            }
            (Self::List(shape, ..), Value::Array(items)) => items
                .iter_mut()
                .enumerate()
                .try_for_each(|(index, item)| shape.check(item, &Place::Item(place, index))),
            (Self::Map(.., count_max), Value::Object(values)) if values.len() > *count_max => {
                Err(place.too_many(*count_max))
            }
            (Self::Map(shape, names, _), Value::Object(values)) => {
                values.iter_mut().try_for_each(|(name, value)| {
                    let place = Place::Field(place, name);
                    let named = names.as_ref().map(|shape| shape.check(&mut name.clone().into(), &place));
                    named.unwrap_or(Ok(())).and_then(|()| shape.check(value, &place))
                })
            }
            (Self::Free(count_max), Value::Object(values)) if values.len() > *count_max => {
                Err(place.too_many(*count_max))
            }
            (Self::Free(_), value @ Value::Object(_)) => match value.to_string() {
                text if text.len() > FREE_BYTES_MAX => {
                    Err(place.invalid(format_args!("must have at most {FREE_BYTES_MAX} bytes as JSON")))
                }
                // No text of the metastore can have it.
                text if text.contains("\\u0000") => Err(place.invalid("must have no zero bytes")),
                _ => Ok(()),
            },
            (Self::Object(fields), Value::Object(values)) => {
                fields.iter().try_for_each(|field| field.check(values, place))
            }
            (Self::All(shapes), value) => shapes.iter().try_for_each(|shape| shape.check(value, place)),
            (Self::Tagged(tag, variants), Value::Object(values)) => {
                let tags: Vec<_> = variants.iter().map(|(name, _)| name.clone()).collect();
                let said = Field { name: tag.clone(), is_required: true, shape: Self::Word(tags) };
                said.check(values, place)?;
                let found = variants.iter().find(|(name, _)| values[tag] == **name);
                let mut fields = found.into_iter().flat_map(|(_, fields)| fields);
                fields.try_for_each(|field| field.check(values, place))
            }
            (_, _) => Err(place.invalid(self.kind())),
        }
    }

    fn kind(&self) -> &'static str {
        match self {
            Self::Formatted(..) | Self::Text(_) | Self::Word(_) => "must be a string",
            Self::Whole(..) => "must be a whole number",
            Self::Number(..) => "must be a number",
            Self::Flag => "must be true or false",
            Self::List(..) => "must be an array",
            Self::Map(..) | Self::Free(_) | Self::Object(_) | Self::All(_) | Self::Tagged(..) => {
                "must be an object"
            }
        }
    }
}

impl Field {
    fn check(&self, values: &mut Map<String, Value>, place: &Place<'_>) -> Result<()> {
        let place = Place::Field(place, &self.name);
        match values.get_mut(&self.name).filter(|value| !value.is_null()) {
            Some(value) => self.shape.check(value, &place),
            None if self.is_required => Err(place.missing()),
            None => Ok(()),
        }
    }
}

fn one_of(words: &[String]) -> String {
    match words {
        [first @ .., last] if !first.is_empty() => format!("must be {} or {last}", first.join(", ")),
        words => format!("must be {}", words.concat()),
    }
}

/// Schemas by name.
struct Schemas(BTreeMap<String, RefOr<Schema>>);

impl Schemas {
    fn shape(&self, schema: &RefOr<Schema>, place: &str) -> Result<Shape, Unbounded> {
        match schema {
            RefOr::Ref(reference) => {
                let name = reference.ref_location.rsplit('/').next().unwrap_or_default();
                let found = self.0.get(name).ok_or_else(|| format!("{place}: {name} is not known"))?;
                self.shape(found, place)
            }
            RefOr::T(Schema::Object(object)) => self.object(object, place),
            RefOr::T(Schema::Array(array)) => {
                let count_max = array.max_items.ok_or_else(|| format!("{place} has no maxItems"))?;
                match &array.items {
                    ArrayItems::RefOrSchema(items) => {
                        let items = Box::new(self.shape(items, &format!("{place}[]"))?);
                        Ok(Shape::List(items, array.min_items.unwrap_or(0), count_max))
                    }
                    ArrayItems::False => Err(format!("{place} has no items")),
                }
            }
            RefOr::T(Schema::OneOf(choice)) => self.choice(choice, place),
            RefOr::T(Schema::AllOf(all)) => {
                let parts = all.items.iter().map(|part| self.shape(part, place));
                parts.collect::<Result<_, _>>().map(Shape::All)
            }
            RefOr::T(_) => Err(format!("{place} is of a kind that nobody can check")),
        }
    }

    fn object(&self, object: &Object, place: &str) -> Result<Shape, Unbounded> {
        let is = |kind: Type| match &object.schema_type {
            SchemaType::Type(only) => *only == kind,
            SchemaType::Array(kinds) => kinds.contains(&kind),
            SchemaType::AnyValue => false,
        };
        if is(Type::String) {
            return text(object, place);
        }
        if is(Type::Boolean) {
            return Ok(Shape::Flag);
        }
        if is(Type::Integer) {
            let bound = |bound: &Option<Number>| bound.as_ref().and_then(whole);
            return match (bound(&object.minimum), bound(&object.maximum)) {
                (Some(min), Some(max)) => Ok(Shape::Whole(min, max)),
                _ => Err(format!("{place} has no minimum or no maximum")),
            };
        }
        if is(Type::Number) {
            let bound = |bound: &Option<Number>| bound.as_ref().map(number);
            return match (bound(&object.minimum), bound(&object.maximum)) {
                (Some(min), Some(max)) => Ok(Shape::Number(min, max)),
                _ => Err(format!("{place} has no minimum or no maximum")),
            };
        }
        match object.additional_properties.as_deref() {
            Some(AdditionalProperties::RefOr(values)) => {
                let count_max =
                    object.max_properties.ok_or_else(|| format!("{place} has no maxProperties"))?;
                let names = object.property_names.as_deref();
                let names = names.map(|names| self.shape(&RefOr::T(names.clone()), &format!("{place}.*")));
                let values = self.shape(values, &format!("{place}.*"))?;
                Ok(Shape::Map(Box::new(values), names.transpose()?.map(Box::new), count_max))
            }
            Some(AdditionalProperties::FreeForm(_)) => {
                let count_max = object
                    .max_properties
                    .ok_or_else(|| format!("{place} may hold anything, without an end"))?;
                Ok(Shape::Free(count_max))
            }
            None => self.fields(object, place).map(Shape::Object),
        }
    }

    fn fields(&self, object: &Object, place: &str) -> Result<Vec<Field>, Unbounded> {
        let field = |(name, schema): (&String, &RefOr<Schema>)| {
            let shape = self.shape(schema, &format!("{place}.{name}"))?;
            Ok(Field { name: name.clone(), is_required: object.required.contains(name), shape })
        };
        object.properties.iter().map(field).collect()
    }

    /// What may be null, or one of several objects that a field tells apart.
    fn choice(&self, choice: &OneOf, place: &str) -> Result<Shape, Unbounded> {
        let is_null = |item: &&RefOr<Schema>| {
            matches!(item, RefOr::T(Schema::Object(Object { schema_type: SchemaType::Type(Type::Null), .. })))
        };
        let items: Vec<_> = choice.items.iter().filter(|item| !is_null(item)).collect();
        if let [only] = items[..] {
            return self.shape(only, place);
        }
        let (mut tag, mut variants) = (String::new(), vec![]);
        for item in items {
            let (name, word, fields) = self.variant(item, place)?;
            tag = name;
            variants.push((word, fields));
        }
        Ok(Shape::Tagged(tag, variants))
    }

    /// The field that tells an object apart, what it says, and the other fields.
    fn variant(&self, item: &RefOr<Schema>, place: &str) -> Result<(String, String, Vec<Field>), Unbounded> {
        let Shape::All(parts) = self.shape(item, place)? else {
            return Err(format!("{place} can't be told apart"));
        };
        let [Shape::Object(fields), Shape::Object(said)] =
            <[Shape; 2]>::try_from(parts).map_err(|_| format!("{place} can't be told apart"))?
        else {
            return Err(format!("{place} can't be told apart"));
        };
        match <[Field; 1]>::try_from(said) {
            Ok([Field { name, shape: Shape::Word(words), .. }]) => Ok((name, words.concat(), fields)),
            Ok(_) | Err(_) => Err(format!("{place} can't be told apart")),
        }
    }
}

fn text(object: &Object, place: &str) -> Result<Shape, Unbounded> {
    if let Some(words) = &object.enum_values {
        let words = words.iter().filter_map(Value::as_str).map(str::to_owned);
        return Ok(Shape::Word(words.collect()));
    }
    let length = Length { min: object.min_length.unwrap_or(0), max: object.max_length.unwrap_or(usize::MAX) };
    let name = match &object.format {
        None => None,
        Some(SchemaFormat::Custom(name)) => Some(name.clone()),
        Some(SchemaFormat::KnownFormat(format)) => {
            serde_json::to_value(format).ok().and_then(|name| Some(name.as_str()?.to_owned()))
        }
    };
    match name {
        Some(name) => {
            let format = Format::named(&name).ok_or_else(|| format!("{place}: no format {name}"))?;
            Ok(Shape::Formatted(format, length))
        }
        None if object.pattern.is_some() => Err(format!("{place} has a pattern, and no format to check it")),
        None if object.max_length.is_none() => Err(format!("{place} has no maxLength, enum or format")),
        None => Ok(Shape::Text(length)),
    }
}

fn whole(number: &Number) -> Option<u64> {
    match number {
        Number::Int(number) => u64::try_from(*number).ok(),
        Number::UInt(number) => u64::try_from(*number).ok(),
        Number::Float(number) => {
            let whole = *number as u64;
            (whole as f64 == *number).then_some(whole)
        }
    }
}

fn number(number: &Number) -> f64 {
    match number {
        Number::Int(number) => *number as f64,
        Number::UInt(number) => *number as f64,
        Number::Float(number) => *number,
    }
}

#[cfg(test)]
mod tests;
