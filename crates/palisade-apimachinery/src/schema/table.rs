//! Reads `types.txt`, the table of built-in types, which `cargo xtask gen --kubernetes DIR` makes, and
//! `extensions.txt`, the fields that Palisade adds.
//!
//! The tables are text so that they can be read and reviewed. A struct is read when it is used for the first time: a
//! command that checks one pod needs a tenth of them.

use std::borrow::Cow;
use std::collections::HashMap;
use std::sync::{LazyLock, OnceLock};

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
        Self { table: Some(Box::new(Table::of([table, extensions]))), ..Self::default() }
    }
}

/// Where each struct stands in the tables.
#[derive(Debug)]
pub(super) struct Table {
    ids: HashMap<&'static str, usize>,
    blocks: Vec<Block>,
}

/// The lines of one struct, and what they mean once somebody asked.
#[derive(Debug)]
struct Block {
    name: &'static str,
    atomic: bool,
    /// Those of upstream, then those of the extensions.
    lines: [&'static str; 2],
    read: OnceLock<Struct>,
}

impl Table {
    /// Finds the structs of both tables; the fields of the second one follow those of the first.
    fn of(texts: [&'static str; 2]) -> Self {
        let mut table = Self { ids: HashMap::new(), blocks: Vec::new() };
        for (part, text) in texts.into_iter().enumerate() {
            // What is above the first struct is a comment.
            for block in text.split("\n@").skip(1) {
                let (head, lines) = block.split_once('\n').unwrap_or((block, ""));
                let (name, flag) = head.split_once(' ').unwrap_or((head, ""));
                let id = *table.ids.entry(name).or_insert(table.blocks.len());
                if id == table.blocks.len() {
                    let atomic = flag == "A";
                    table.blocks.push(Block { name, atomic, lines: [""; 2], read: OnceLock::new() });
                }
                table.blocks[id].lines[part] = lines;
            }
        }
        table
    }

    pub(super) fn len(&self) -> usize {
        self.blocks.len()
    }

    pub(super) fn id(&self, name: &str) -> Option<usize> {
        self.ids.get(name).copied()
    }

    pub(super) fn get(&self, id: usize) -> Option<&Struct> {
        let block = self.blocks.get(id)?;
        Some(block.read.get_or_init(|| {
            let lines = block.lines.iter().zip([0, EXTENSION]).flat_map(|(text, since)| {
                text.lines().filter(|line| is_field(line)).map(move |line| (line, since))
            });
            let fields = lines.filter_map(|(line, since)| {
                let field = read_field(line, &self.ids)?;
                Some(Field { since: since.max(field.since), ..field })
            });
            Struct::new(Cow::Borrowed(block.name), block.atomic, fields.collect())
        }))
    }
}

fn is_field(line: &str) -> bool {
    !line.is_empty() && !line.starts_with('#')
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
    use std::collections::HashSet;

    use super::*;

    #[test]
    fn every_line_of_the_table_is_understood() {
        let lines = || TABLE.lines().chain(EXTENSIONS.lines()).filter(|line| is_field(line));
        let fields = lines().filter(|line| !line.starts_with('@')).count();
        let table = Table::of([TABLE, EXTENSIONS]);
        let read: usize =
            (0..table.len()).filter_map(|id| table.get(id)).map(|known| known.fields.len()).sum();
        assert_eq!(read, fields);
        assert!(fields > 1500);
        let names: HashSet<&str> =
            lines().filter_map(|line| line.strip_prefix('@')?.split(' ').next()).collect();
        assert_eq!(table.len(), names.len());
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
