//! Reads `types.txt`, the table of built-in types, which `cargo xtask gen --kubernetes DIR` makes, and
//! `extensions.txt`, the fields that Palisade adds.
//!
//! The tables are text so that they can be read and reviewed; reading all of it takes well under a millisecond and
//! happens on first use.

use std::borrow::Cow;
use std::collections::HashMap;
use std::sync::LazyLock;

use super::{EXTENSION, Field, ListType, PatchStrategy, Schema, Struct, Type, TypeKind};

const TABLE: &str = include_str!("types.txt");
const EXTENSIONS: &str = include_str!("extensions.txt");

static BUILTIN: LazyLock<Schema> = LazyLock::new(|| Schema::read(TABLE, EXTENSIONS));

/// The types of the built-in kinds.
#[must_use]
pub fn builtin() -> &'static Schema {
    &BUILTIN
}

impl Schema {
    /// Reads tables in the form of `types.txt`; the fields of the second one follow those of the first.
    #[must_use]
    pub fn read(table: &'static str, extensions: &'static str) -> Self {
        let lines = |text: &'static str| text.lines().filter(|l| !l.is_empty() && !l.starts_with('#'));
        let all = || lines(table).map(|l| (l, 0)).chain(lines(extensions).map(|l| (l, EXTENSION)));
        let mut ids: HashMap<&str, usize> = HashMap::new();
        let mut parts: Vec<(&'static str, bool, Vec<Field>)> = Vec::new();
        for head in all().filter_map(|(line, _)| line.strip_prefix('@')) {
            let (name, atomic) =
                head.split_once(' ').map_or((head, false), |(name, flag)| (name, flag == "A"));
            ids.entry(name).or_insert_with(|| {
                parts.push((name, atomic, Vec::new()));
                parts.len() - 1
            });
        }
        let mut current = 0;
        for (line, since) in all() {
            if let Some(head) = line.strip_prefix('@') {
                current = ids.get(head.split(' ').next().unwrap_or(head)).copied().unwrap_or_default();
            } else if let (Some((_, _, fields)), Some(field)) =
                (parts.get_mut(current), read_field(line, &ids))
            {
                fields.push(Field { since: since.max(field.since), ..field });
            }
        }
        let structs =
            parts.into_iter().map(|(name, atomic, fields)| Struct::new(Cow::Borrowed(name), atomic, fields));
        Self { structs: structs.collect(), ..Self::default() }
    }
}

fn read_field(line: &'static str, ids: &HashMap<&str, usize>) -> Option<Field> {
    let mut words = line.split(' ');
    let name = words.next()?;
    let mut ty = read_type(words.next()?, ids)?;
    let mut field = Field {
        name: Cow::Borrowed(name),
        ty: Type::plain(TypeKind::Any),
        omit_empty: false,
        omit_zero: false,
        required: false,
        merge_key: None,
        strategy: PatchStrategy::default(),
        default: None,
        since: 0,
        until: 0,
    };
    for flag in words {
        match flag {
            "o" => field.omit_empty = true,
            "z" => field.omit_zero = true,
            "r" => field.required = true,
            "A" => set_atomic(&mut ty),
            "S" => set_list(&mut ty, ListType::Set),
            _ => {
                if let Some(keys) = flag.strip_prefix("K=") {
                    set_list(&mut ty, ListType::Map(keys.split(',').map(Cow::Borrowed).collect()));
                } else if let Some(key) = flag.strip_prefix("p=") {
                    field.merge_key = Some(Cow::Borrowed(key));
                } else if let Some(strategies) = flag.strip_prefix("s=") {
                    for strategy in strategies.split(',') {
                        match strategy {
                            "merge" => field.strategy.merge = true,
                            "retainKeys" => field.strategy.retain_keys = true,
                            "replace" => field.strategy.replace = true,
                            _ => {}
                        }
                    }
                } else if let Some(json) = flag.strip_prefix("d=") {
                    field.default = serde_json::from_str(json).ok();
                } else if let Some(since) = flag.strip_prefix('>') {
                    field.since = since.parse().unwrap_or(0);
                } else if let Some(until) = flag.strip_prefix('<') {
                    field.until = until.parse().unwrap_or(0);
                }
            }
        }
    }
    field.ty = ty;
    Some(field)
}

/// The Go name of values that may be anything, where `runtime.RawExtension` and its like must be objects.
pub(crate) const JSON: &str = "v1.JSON";

fn read_type(text: &'static str, ids: &HashMap<&str, usize>) -> Option<Type> {
    if let Some(rest) = text.strip_prefix('*') {
        let mut ty = read_type(rest, ids)?;
        ty.pointer = true;
        return Some(ty);
    }
    if let Some(rest) = text.strip_prefix("[]") {
        let item = read_type(rest, ids)?;
        return Some(Type::plain(TypeKind::List { item: Box::new(item), list: ListType::Atomic }));
    }
    if let Some(rest) = text.strip_prefix("{}") {
        // The Go name at the end of a map belongs to the map: `{}quantity:v1.ResourceList`.
        let (item, go_name) = rest.split_once(':').unwrap_or((rest, ""));
        let item = read_type(item, ids)?;
        let kind = TypeKind::Map { item: Box::new(item), atomic: false };
        return Some(Type { pointer: false, kind, go_name });
    }
    let (base, go_name) = text.split_once(':').unwrap_or((text, if text == "json" { JSON } else { "" }));
    let kind = match base {
        "string" | "duration" => TypeKind::String,
        "bool" => TypeKind::Bool,
        "int32" => TypeKind::Int(32),
        "int64" => TypeKind::Int(64),
        "float64" => TypeKind::Float,
        "bytes" => TypeKind::Bytes,
        "quantity" => TypeKind::Quantity,
        "intstr" => TypeKind::IntOrString,
        "time" => TypeKind::Time,
        "microtime" => TypeKind::MicroTime,
        "schemaor" => TypeKind::SchemaOr,
        "raw" | "json" | "fieldsv1" => TypeKind::Any,
        name => TypeKind::Struct { id: *ids.get(name)?, atomic: false },
    };
    Some(Type { pointer: false, kind, go_name })
}

fn set_atomic(ty: &mut Type) {
    match &mut ty.kind {
        TypeKind::Struct { atomic, .. } | TypeKind::Map { atomic, .. } => *atomic = true,
        _ => {}
    }
}

fn set_list(ty: &mut Type, list_type: ListType) {
    if let TypeKind::List { list, .. } = &mut ty.kind {
        *list = list_type;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_line_of_the_table_is_understood() {
        let lines = TABLE.lines().chain(EXTENSIONS.lines());
        let fields = lines.filter(|l| !l.is_empty() && !l.starts_with(['#', '@'])).count();
        let read: usize = builtin().structs.iter().map(|s| s.fields.len()).sum();
        assert_eq!(read, fields);
        assert!(fields > 1500);
    }

    #[test]
    fn knows_keys_and_go_names() {
        let (_, container) = builtin().by_name("core.Container").unwrap();
        let ports = container.field("ports").unwrap();
        let TypeKind::List { list, .. } = &ports.ty.kind else { panic!("a list") };
        assert_eq!(*list, ListType::Map(vec!["containerPort".into(), "protocol".into()]));
        assert_eq!(ports.merge_key.as_deref(), Some("containerPort"));
        assert_eq!(ports.ty.go(builtin()), "[]v1.ContainerPort");
        assert_eq!(container.field("imagePullPolicy").unwrap().ty.go(builtin()), "v1.PullPolicy");
        assert!(container.field("nope").is_none());
    }
}
