//! Reads declarations of Go types: structs with their tags, named types, imports.
//!
//! Implements the part of <https://go.dev/ref/spec#Types> that upstream's `types.go` files use. Functions,
//! constants and comments are skipped.

use std::collections::BTreeMap;

/// The types that one package declares.
#[derive(Debug, Default)]
pub(crate) struct Package {
    types: BTreeMap<String, Declaration>,
}

/// What a type name stands for.
#[derive(Debug)]
pub(crate) enum Declaration {
    /// `type PodSpec struct { … }`
    Struct(Vec<Field>),
    /// `type PullPolicy string`
    Named(Type),
    /// `type IPFamilyPolicyType = IPFamilyPolicy`
    Alias(Type),
}

/// A field of a struct.
#[derive(Debug)]
pub(crate) struct Field {
    /// Go name; for an embedded struct the name of its type.
    pub(crate) name: String,
    /// Its type.
    pub(crate) ty: Type,
    /// A struct whose fields are promoted.
    pub(crate) embedded: bool,
    /// The text between the backticks.
    tag: String,
}

/// A type as it is written.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Type {
    Pointer(Box<Type>),
    List(Box<Type>),
    /// A map; every key is a string.
    Map(Box<Type>),
    /// The import path of the package, empty for Go's own types, and the name.
    Name(String, String),
}

impl Field {
    /// The words of the `json` tag; empty without one.
    fn json_words(&self) -> impl Iterator<Item = &str> {
        self.tag_value("json").unwrap_or_default().split(',')
    }

    /// JSON name, `None` if the field has none: it is embedded, or never in JSON.
    pub(crate) fn json_name(&self) -> Option<&str> {
        self.json_words().next().filter(|name| !name.is_empty() && *name != "-")
    }

    /// Whether the JSON form of this struct is part of its parent's.
    pub(crate) fn inline(&self) -> bool {
        self.embedded && self.json_name().is_none()
    }

    /// Whether the `json` tag has an option.
    pub(crate) fn has_option(&self, option: &str) -> bool {
        self.json_words().skip(1).any(|word| word == option)
    }

    /// The number in the `protobuf` tag: `protobuf:"bytes,2,rep,name=Webhooks"`.
    pub(crate) fn protobuf_number(&self) -> Option<u32> {
        self.tag_value("protobuf")?.split(',').nth(1)?.parse().ok()
    }

    fn tag_value(&self, key: &str) -> Option<&str> {
        let (_, rest) = self.tag.split_once(&format!("{key}:\""))?;
        rest.split_once('"').map(|(value, _)| value)
    }
}

impl Package {
    /// Adds the types that one file of the package at `import_path` declares.
    pub(crate) fn add(&mut self, text: &str, import_path: &str) {
        let imports = imports(text);
        let mut current: Option<(String, Vec<Field>)> = None;
        for line in text.lines() {
            let line = without_comment(line).trim();
            if let Some((name, mut fields)) = current.take() {
                if line == "}" {
                    self.types.insert(name, Declaration::Struct(fields));
                    continue;
                }
                fields.extend(field(line, &imports, import_path));
                current = Some((name, fields));
            } else if let Some((name, rest)) =
                line.strip_prefix("type ").and_then(|rest| rest.split_once(char::is_whitespace))
            {
                let rest = rest.trim();
                if rest == "struct {" {
                    current = Some((name.to_owned(), Vec::new()));
                } else if rest == "struct{}" || rest == "struct {}" {
                    self.types.insert(name.to_owned(), Declaration::Struct(Vec::new()));
                } else if let Some(ty) = rest.strip_prefix('=') {
                    let ty = parse_type(ty.trim(), &imports, import_path);
                    self.types.insert(name.to_owned(), Declaration::Alias(ty));
                } else if !rest.starts_with("interface") && !rest.starts_with("func") {
                    let ty = parse_type(rest, &imports, import_path);
                    self.types.insert(name.to_owned(), Declaration::Named(ty));
                }
            }
        }
    }

    /// What a name of this package stands for.
    pub(crate) fn get(&self, name: &str) -> Option<&Declaration> {
        self.types.get(name)
    }
}

/// The line without a trailing comment. A tag may contain slashes, so only what follows it counts.
fn without_comment(line: &str) -> &str {
    if line.trim_start().starts_with("//") {
        return "";
    }
    let tag_end = line.rfind('`').map_or(0, |at| at + 1);
    match line[tag_end..].find("//") {
        Some(at) => &line[..tag_end + at],
        None => line,
    }
}

/// `import ( … )`: the name in this file and the path.
fn imports(text: &str) -> BTreeMap<String, String> {
    let block = text.split_once("\nimport (").and_then(|(_, rest)| rest.split_once(')'));
    let single = text.lines().filter_map(|line| line.strip_prefix("import "));
    let lines = block.map(|(block, _)| block.lines()).into_iter().flatten().chain(single);
    lines
        .filter_map(|line| {
            let (alias, rest) = line.trim().split_once('"')?;
            let path = rest.split_once('"')?.0;
            let base = path.rsplit('/').next().unwrap_or(path);
            let alias = if alias.trim().is_empty() { base } else { alias.trim() };
            Some((alias.to_owned(), path.to_owned()))
        })
        .collect()
}

fn field(line: &str, imports: &BTreeMap<String, String>, import_path: &str) -> Option<Field> {
    let (declared, tag) = match line.split_once('`') {
        Some((declared, tag)) => (declared.trim(), tag.trim_end_matches('`')),
        None => (line, ""),
    };
    let mut words = declared.split_whitespace();
    let (first, second) = (words.next()?, words.next());
    let embedded = second.is_none();
    let ty = parse_type(second.unwrap_or(first), imports, import_path);
    let name = first.rsplit(['.', '*']).next().unwrap_or(first).to_owned();
    Some(Field { name, ty, embedded, tag: tag.to_owned() })
}

fn parse_type(text: &str, imports: &BTreeMap<String, String>, import_path: &str) -> Type {
    let inner = |rest: &str| Box::new(parse_type(rest, imports, import_path));
    if let Some(rest) = text.strip_prefix('*') {
        return Type::Pointer(inner(rest));
    }
    if let Some(rest) = text.strip_prefix("[]") {
        return Type::List(inner(rest));
    }
    if let Some((_, rest)) = text.strip_prefix("map[").and_then(|rest| rest.split_once(']')) {
        return Type::Map(inner(rest));
    }
    if let Some((package, name)) = text.split_once('.') {
        let path = imports.get(package).map_or(package, String::as_str);
        return Type::Name(path.to_owned(), name.to_owned());
    }
    // Go's own types are in lower case; every type of an API is exported.
    let path = if text.starts_with(char::is_lowercase) { "" } else { import_path };
    Type::Name(path.to_owned(), text.to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    const SOURCE: &str = "package v1\n\nimport (\n\tmetav1 \"k8s.io/apimachinery/pkg/apis/meta/v1\"\n\t\"k8s.io/api/types\"\n)\n
// Thing is a thing.
type Thing struct {
\tmetav1.TypeMeta `json:\",inline\"`
\t// Old string `json:\"old\"`
\tName string `json:\"name\" protobuf:\"bytes,1,opt,name=name\"` // the name
\tPolicy *Policy `json:\"policy,omitempty,omitzero\"`
\tUIDs map[string][]types.UID `json:\"-\"`
}

type Policy string

type Other = Policy

type Empty struct{}
";

    #[test]
    fn reads_structs_tags_and_imports() {
        let mut package = Package::default();
        package.add(SOURCE, "k8s.io/api/things/v1");
        let Some(Declaration::Struct(fields)) = package.get("Thing") else { panic!("a struct") };
        let shown: Vec<String> = fields
            .iter()
            .map(|f| format!("{} {:?} {:?} {}", f.name, f.json_name(), f.protobuf_number(), f.inline()))
            .collect();
        assert_eq!(
            shown,
            [
                "TypeMeta None None true",
                "Name Some(\"name\") Some(1) false",
                "Policy Some(\"policy\") None false",
                "UIDs None None false",
            ]
        );
        assert!(fields[2].has_option("omitempty") && fields[2].has_option("omitzero"));
        let uid = Type::Name("k8s.io/api/types".to_owned(), "UID".to_owned());
        assert_eq!(fields[3].ty, Type::Map(Box::new(Type::List(Box::new(uid)))));
        assert!(matches!(package.get("Policy"), Some(Declaration::Named(_))));
        assert!(matches!(package.get("Other"), Some(Declaration::Alias(_))));
        assert!(matches!(package.get("Empty"), Some(Declaration::Struct(fields)) if fields.is_empty()));
    }
}
