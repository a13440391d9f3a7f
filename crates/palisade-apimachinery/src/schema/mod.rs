//! The type tree of a kind: fields, JSON types, list types and keys, merge strategies, defaults.
//!
//! One tree serves decoding (what exists, Go's error for a wrong type), canonical form (what Go's
//! `encoding/json` leaves out or adds), strategic merge patch (merge keys) and server-side apply (list and map types).
//! Built-in kinds come from `types.txt`, parsed on first use; custom ones from their structural schema.
//!
//! Implements: the markers described in Kubernetes' "Server-Side Apply: Custom resources and merge strategy",
//! <https://kubernetes.io/docs/reference/using-api/server-side-apply/#merge-strategy>.

mod table;
mod zero;

use std::borrow::Cow;
use std::sync::OnceLock;

use serde_json::Value;

pub(crate) use table::JSON;
use table::Table;
pub use table::builtin;

use palisade_base::version::KubeVersion;

/// A set of structs that refer to each other.
#[derive(Debug, Default)]
pub struct Schema {
    /// Structs that are read when they are used: the built-in ones.
    table: Option<Box<Table>>,
    /// Those that follow them.
    structs: Vec<Struct>,
    /// Where [`TypeKind::SchemaOr`] leads: it is looked up for each level of a definition's schemas.
    json_schema_props: OnceLock<Option<usize>>,
}

/// An object type with known fields.
#[derive(Debug)]
pub struct Struct {
    /// `core.PodSpec`: group alias and Go name; empty for custom types.
    pub name: Cow<'static, str>,
    /// Server-side apply replaces it as a whole.
    pub atomic: bool,
    /// Unknown fields are kept.
    pub preserve_unknown: bool,
    /// Fields in the order of declaration.
    pub fields: Vec<Field>,
    /// Where each field is, by [`slot_of`] its name; [`FREE`] ends a run. A power of two, at least twice the fields: a
    /// schema of a definition has tens of thousands of names, and each is looked up several times on its way into storage.
    slots: Box<[u16]>,
    /// Indices of the fields Go may write although nothing is set; few structs have more than one or two.
    written: Vec<u16>,
}

/// [`Field::since`] of the fields that are Palisade's extensions: no release has them.
pub const EXTENSION: u16 = 255;

/// A field of a [`Struct`].
#[derive(Debug)]
pub struct Field {
    /// JSON name.
    pub name: Cow<'static, str>,
    /// Its type.
    pub ty: Type,
    /// Go leaves the zero value out.
    pub omit_empty: bool,
    /// Go leaves a zero struct or time out (v1.34 on).
    pub omit_zero: bool,
    /// Required in OpenAPI.
    pub required: bool,
    /// Merge key of strategic merge patch.
    pub merge_key: Option<Cow<'static, str>>,
    /// Strategy of strategic merge patch.
    pub strategy: PatchStrategy,
    /// Default in OpenAPI (and with it server-side apply, for list keys).
    pub default: Option<Value>,
    /// First release that has the field, 0 if all have.
    pub since: u16,
    /// First release that no longer has it, 0 if all have.
    pub until: u16,
}

/// What a strategic merge patch does with a field.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct PatchStrategy {
    /// Lists are merged by key or as a set.
    pub merge: bool,
    /// `$retainKeys` is honoured.
    pub retain_keys: bool,
    /// Maps are replaced.
    pub replace: bool,
}

/// The type of a value.
#[derive(Debug, Clone)]
pub struct Type {
    /// A Go pointer: the zero value is nil, and an explicit zero stays.
    pub pointer: bool,
    /// What the value is.
    pub kind: TypeKind,
    /// Go's name of a named scalar (`v1.PullPolicy`), else empty.
    pub go_name: &'static str,
}

/// What a value is.
#[derive(Debug, Clone)]
pub enum TypeKind {
    /// Any JSON, kept as it is.
    Any,
    /// Text.
    String,
    /// Boolean.
    Bool,
    /// A whole number of so many bits.
    Int(u8),
    /// A floating-point number.
    Float,
    /// Base64 text.
    Bytes,
    /// `resource.Quantity`.
    Quantity,
    /// `intstr.IntOrString`.
    IntOrString,
    /// RFC 3339 with seconds.
    Time,
    /// RFC 3339 with microseconds.
    MicroTime,
    /// A JSON schema, or a boolean or list of them.
    SchemaOr,
    /// An object with known fields.
    Struct {
        /// Index into [`Schema`].
        id: usize,
        /// Replaced as a whole by server-side apply.
        atomic: bool,
    },
    /// A list.
    List {
        /// Type of the items.
        item: Box<Type>,
        /// How server-side apply merges it.
        list: ListType,
    },
    /// An object whose keys are data.
    Map {
        /// Type of the values.
        item: Box<Type>,
        /// Replaced as a whole by server-side apply.
        atomic: bool,
    },
}

/// How a list is merged.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum ListType {
    /// Replaced as a whole.
    Atomic,
    /// A set of scalars.
    Set,
    /// Objects with keys.
    Map(Vec<Cow<'static, str>>),
}

/// A type together with the schema its structs live in.
#[derive(Debug, Clone, Copy)]
pub struct TypeRef<'a> {
    /// The schema.
    pub schema: &'a Schema,
    /// The type.
    pub ty: &'a Type,
}

/// A slot without a field.
const FREE: u16 = u16::MAX;

/// Where the search for a name begins: field names differ in length, beginning or end.
fn slot_of(name: &str) -> usize {
    let bytes = name.as_bytes();
    let at = |index: usize| bytes.get(index).copied().map_or(0, usize::from);
    let end = at(bytes.len().wrapping_sub(1)) ^ (at(bytes.len() / 2) << 3);
    (bytes.len().wrapping_mul(0x9d) ^ at(0).wrapping_mul(0x65) ^ end.wrapping_mul(0x2f)).wrapping_mul(0x9e37)
        >> 4
}

impl Struct {
    /// Builds the index.
    #[must_use]
    pub fn new(name: Cow<'static, str>, atomic: bool, fields: Vec<Field>) -> Self {
        let count = u16::try_from(fields.len()).unwrap_or(u16::MAX);
        let mut slots = vec![FREE; (fields.len() * 2).next_power_of_two()].into_boxed_slice();
        for at in 0..count {
            let mut slot = slot_of(&fields[usize::from(at)].name) & (slots.len() - 1);
            while slots[slot] != FREE {
                slot = (slot + 1) & (slots.len() - 1);
            }
            slots[slot] = at;
        }
        let written = (0..count).filter(|at| fields[usize::from(*at)].may_be_written_unset()).collect();
        Self { name, atomic, preserve_unknown: false, fields, slots, written }
    }

    /// The field of that JSON name.
    #[must_use]
    pub fn field(&self, name: &str) -> Option<&Field> {
        self.position(name).map(|at| &self.fields[at])
    }

    /// The fields Go may write although nothing is set.
    pub(crate) fn written_unset(&self) -> impl Iterator<Item = &Field> {
        self.written.iter().map(|at| &self.fields[usize::from(*at)])
    }

    pub(crate) fn position(&self, name: &str) -> Option<usize> {
        let mask = self.slots.len() - 1;
        let mut slot = slot_of(name) & mask;
        loop {
            let at = usize::from(self.slots[slot]);
            // Half of the slots are free, and so is the place that ends every run.
            if *self.fields.get(at)?.name == *name {
                return Some(at);
            }
            slot = (slot + 1) & mask;
        }
    }

    /// The Go name without its package: `PodSpec`.
    #[must_use]
    pub fn short_name(&self) -> &str {
        self.name.rsplit('.').next().unwrap_or(&self.name)
    }
}

impl Field {
    /// Whether the emulated release has the field.
    #[must_use]
    pub fn exists_in(&self, version: KubeVersion) -> bool {
        version.at_least(self.since) && (self.until == 0 || !version.at_least(self.until))
    }
}

impl Type {
    /// A type that is no pointer and has no Go name.
    #[must_use]
    pub fn plain(kind: TypeKind) -> Self {
        Self { pointer: false, kind, go_name: "" }
    }

    /// Go's name of the type as it stands in JSON errors: `[]v1.Container`, `string`, `map[string]string`.
    #[must_use]
    pub fn go(&self, schema: &Schema) -> String {
        if !self.go_name.is_empty() {
            return self.go_name.to_owned();
        }
        match &self.kind {
            TypeKind::Any => "interface {}".into(),
            TypeKind::String => "string".into(),
            TypeKind::Bool => "bool".into(),
            TypeKind::Int(bits) => format!("int{bits}"),
            TypeKind::Float => "float64".into(),
            TypeKind::Bytes => "[]uint8".into(),
            TypeKind::Quantity => "resource.Quantity".into(),
            TypeKind::IntOrString => "intstr.IntOrString".into(),
            TypeKind::Time => "v1.Time".into(),
            TypeKind::MicroTime => "v1.MicroTime".into(),
            TypeKind::SchemaOr => "v1.JSONSchemaProps".into(),
            TypeKind::Struct { id, .. } => schema.get(*id).map_or_else(String::new, |s| {
                let package = if s.name.starts_with("psp.") { "v1beta1" } else { "v1" };
                format!("{package}.{}", s.short_name())
            }),
            TypeKind::List { item, .. } => format!("[]{}{}", star(item), item.go(schema)),
            TypeKind::Map { item, .. } => format!("map[string]{}{}", star(item), item.go(schema)),
        }
    }
}

fn star(ty: &Type) -> &'static str {
    if ty.pointer { "*" } else { "" }
}

impl<'a> TypeRef<'a> {
    /// Another type in the same schema.
    #[must_use]
    pub fn with(self, ty: &'a Type) -> Self {
        Self { schema: self.schema, ty }
    }

    /// The struct, if it is one.
    #[must_use]
    pub fn as_struct(self) -> Option<&'a Struct> {
        match &self.ty.kind {
            TypeKind::Struct { id, .. } => self.schema.get(*id),
            TypeKind::SchemaOr => self.schema.json_schema_props(),
            _ => None,
        }
    }

    /// The type of a field of a struct or of a value of a map.
    #[must_use]
    pub fn member(self, name: &str) -> Option<Self> {
        match &self.ty.kind {
            TypeKind::Struct { .. } => self.as_struct()?.field(name).map(|f| self.with(&f.ty)),
            TypeKind::Map { item, .. } => Some(self.with(item)),
            _ => None,
        }
    }

    /// The type of the items of a list.
    #[must_use]
    pub fn item(self) -> Option<Self> {
        match &self.ty.kind {
            TypeKind::List { item, .. } => Some(self.with(item)),
            _ => None,
        }
    }
}

impl Schema {
    /// The struct that a type's `id` means.
    #[must_use]
    pub fn get(&self, id: usize) -> Option<&Struct> {
        match &self.table {
            None => self.structs.get(id),
            Some(table) => table.get(id).or_else(|| self.structs.get(id.checked_sub(table.len())?)),
        }
    }

    /// Adds a struct: its id.
    pub(crate) fn push(&mut self, new: Struct) -> usize {
        self.structs.push(new);
        self.table.as_ref().map_or(0, |table| table.len()) + self.structs.len() - 1
    }

    /// The struct of that name.
    #[must_use]
    pub fn by_name(&self, name: &str) -> Option<(usize, &Struct)> {
        let id = match &self.table {
            Some(table) => table.id(name)?,
            None => self.structs.iter().position(|known| known.name == name)?,
        };
        self.get(id).map(|known| (id, known))
    }

    fn json_schema_props(&self) -> Option<&Struct> {
        let find = || self.by_name("apiextensions.JSONSchemaProps").map(|(at, _)| at);
        self.json_schema_props.get_or_init(find).and_then(|at| self.get(at))
    }
}
