//! Custom resource definitions of the sizes and shapes that operators ship: a deterministic generator, so that every
//! run and every machine measures the same ones.

use serde_json::{Map, Value, json};

/// One row of the distribution: what a definition of a common operator has, per version.
struct Shape {
    versions: usize,
    nodes: usize,
    depth: usize,
    rules: usize,
    patterns: usize,
    /// Bytes of description for each node.
    text: usize,
}

const fn shape(
    versions: usize,
    nodes: usize,
    depth: usize,
    rules: usize,
    patterns: usize,
    text: usize,
) -> Shape {
    Shape { versions, nodes, depth, rules, patterns, text }
}

/// Small ones are many and large ones are few; the largest has seven hundred kilobytes of JSON.
const SHAPES: &[Shape] = &[
    shape(1, 30, 5, 3, 0, 40),
    shape(1, 35, 6, 0, 0, 150),
    shape(1, 25, 4, 1, 6, 150),
    shape(1, 40, 7, 0, 5, 110),
    shape(2, 32, 5, 5, 0, 40),
    shape(2, 24, 4, 1, 6, 200),
    shape(1, 64, 6, 8, 4, 40),
    shape(1, 97, 9, 5, 2, 45),
    shape(3, 33, 5, 6, 0, 40),
    shape(2, 64, 6, 10, 5, 42),
    shape(1, 97, 8, 0, 0, 70),
    shape(1, 45, 6, 7, 14, 330),
    shape(3, 67, 7, 3, 0, 48),
    shape(2, 105, 9, 9, 4, 34),
    shape(1, 130, 5, 0, 1, 160),
    shape(3, 54, 5, 15, 0, 41),
    shape(1, 210, 8, 0, 7, 130),
    shape(1, 207, 8, 0, 6, 128),
    shape(3, 128, 7, 18, 0, 58),
    shape(2, 44, 6, 4, 15, 450),
    shape(2, 45, 6, 8, 16, 440),
    shape(3, 324, 10, 6, 0, 30),
    shape(1, 146, 11, 39, 46, 366),
    shape(3, 46, 6, 5, 16, 490),
    shape(2, 139, 10, 16, 29, 306),
    shape(1, 530, 16, 0, 8, 167),
    shape(1, 628, 18, 1, 8, 168),
    shape(3, 561, 12, 47, 0, 46),
    shape(1, 1_500, 11, 0, 3, 63),
    shape(2, 249, 11, 109, 69, 413),
    shape(1, 8_000, 16, 0, 24, 0),
    shape(1, 1_300, 12, 1, 36, 157),
    shape(1, 1_700, 8, 1, 86, 111),
    shape(1, 1_400, 12, 16, 42, 164),
    shape(1, 1_700, 12, 5, 61, 158),
    shape(2, 1_500, 11, 1, 64, 112),
];

const WORDS: &[&str] = &[
    "a",
    "the",
    "name",
    "of",
    "resource",
    "that",
    "is",
    "used",
    "when",
    "field",
    "value",
    "must",
    "be",
    "set",
    "to",
    "default",
    "controller",
    "reference",
    "namespace",
    "optional",
    "list",
    "selects",
    "object",
    "with",
    "status",
];

const PATTERNS: &[&str] = &[
    "^[a-z0-9]([-a-z0-9]*[a-z0-9])?$",
    r"^(0|(([0-9]+)y)?(([0-9]+)w)?(([0-9]+)d)?(([0-9]+)h)?(([0-9]+)m)?(([0-9]+)s)?(([0-9]+)ms)?)$",
    r"^[a-z0-9]([-a-z0-9]*[a-z0-9])?(\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*$",
    r"(^0|([0-9]*[.])?[0-9]+((K|M|G|T|E|P)i?)?B)$",
    r"^(\+|-)?(([0-9]+(\.[0-9]*)?)|(\.[0-9]+))(([KMGTPE]i)|[numkMGTPE]|([eE](\+|-)?(([0-9]+(\.[0-9]*)?)|(\.[0-9]+))))?$",
];

/// Definition number `index`.
pub(super) fn definition(index: usize) -> Value {
    let shape = &SHAPES[index % SHAPES.len()];
    let (plural, group) = (format!("widgets{index}"), format!("g{}.measure.example", index % 20));
    let versions: Vec<Value> = (0..shape.versions)
        .map(|version| {
            let mut generator = Generator {
                state: u64::try_from(index).unwrap_or_default() + 1,
                rules: shape.rules,
                patterns: shape.patterns,
                text: shape.text,
            };
            let spec = generator.object(shape.nodes, shape.depth.saturating_sub(1), 0);
            let status = json!({"type": "object", "x-kubernetes-preserve-unknown-fields": true});
            json!({
                "name": if version == 0 { "v1".to_owned() } else { format!("v1beta{version}") },
                "served": true,
                "storage": version == 0,
                "subresources": {"status": {}},
                "additionalPrinterColumns": [{"name": "Age", "type": "date", "jsonPath": ".metadata.creationTimestamp"}],
                "schema": {"openAPIV3Schema": {"type": "object", "description": generator.description(), "properties": {
                    "apiVersion": {"type": "string", "description": generator.description()},
                    "kind": {"type": "string", "description": generator.description()},
                    "metadata": {"type": "object"},
                    "spec": spec,
                    "status": status,
                }}},
            })
        })
        .collect();
    json!({
        "apiVersion": "apiextensions.k8s.io/v1",
        "kind": "CustomResourceDefinition",
        "metadata": {"name": format!("{plural}.{group}")},
        "spec": {
            "group": group,
            "scope": "Namespaced",
            "names": {"plural": plural, "singular": format!("widget{index}"), "kind": format!("Widget{index}"), "listKind": format!("Widget{index}List")},
            "versions": versions,
        },
    })
}

/// An object of the kind of a definition, with its first fields set.
pub(super) fn object(definition: &Value, name: &str) -> Value {
    let version = &definition["spec"]["versions"][0];
    let spec = &version["schema"]["openAPIV3Schema"]["properties"]["spec"];
    json!({
        "apiVersion": format!("{}/v1", definition["spec"]["group"].as_str().unwrap_or_default()),
        "kind": definition["spec"]["names"]["kind"],
        "metadata": {"name": name, "labels": {"app": "measure"}},
        "spec": filled(spec, 3),
    })
}

fn filled(schema: &Value, depth: usize) -> Value {
    match schema["type"].as_str() {
        Some("object") if depth > 0 => {
            let fields = schema["properties"].as_object().into_iter().flatten();
            let fields = fields.filter(|(_, inner)| inner.get("pattern").is_none()).enumerate();
            let fields = fields.filter(|(at, (name, _))| *at < 8 || *name == "name").map(|(_, field)| field);
            Value::Object(fields.map(|(name, inner)| (name.clone(), filled(inner, depth - 1))).collect())
        }
        Some("array") if depth > 1 => json!([filled(&schema["items"], depth - 1)]),
        Some("object") => json!({}),
        Some("array") => json!([]),
        Some("integer") => 7.into(),
        Some("boolean") => true.into(),
        Some(_) => schema["enum"].get(0).cloned().unwrap_or_else(|| "text".into()),
        None => 8080.into(),
    }
}

/// Generates schemas from a linear congruential sequence; the counts are what is still to be placed.
struct Generator {
    state: u64,
    rules: usize,
    patterns: usize,
    text: usize,
}

impl Generator {
    fn below(&mut self, bound: usize) -> usize {
        self.state =
            self.state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        usize::try_from(self.state >> 33).unwrap_or_default() % bound.max(1)
    }

    fn description(&mut self) -> String {
        let mut text = String::with_capacity(self.text + 12);
        while text.len() < self.text {
            text.push_str(WORDS[self.below(WORDS.len())]);
            text.push(' ');
        }
        text
    }

    /// An object of about `nodes` schemas, below at most so many lists as rules can be afforded for.
    fn object(&mut self, nodes: usize, depth: usize, lists: usize) -> Value {
        let fields = if depth == 0 { nodes } else { nodes.min(4 + self.below(8)) }.max(1);
        let mut left = nodes.saturating_sub(1).max(fields);
        let mut properties = Map::new();
        for field in 0..fields {
            let rest = fields - field;
            let share = if rest == 1 || depth == 0 { left / rest } else { 1 + self.below(2 * left / rest) };
            let share = share.clamp(1, left.saturating_sub(rest - 1).max(1));
            left = left.saturating_sub(share);
            let inner =
                if share > 1 && depth > 0 { self.branch(share, depth - 1, lists) } else { self.leaf() };
            properties.insert(
                format!("field{}", char::from(b'A' + u8::try_from(field % 26).unwrap_or_default()))
                    + &(field / 26).to_string(),
                inner,
            );
        }
        properties.insert("name".to_owned(), json!({"type": "string", "maxLength": 253}));
        let mut schema = json!({"type": "object", "properties": properties});
        self.describe(&mut schema);
        if self.rules > 0 && lists <= 1 {
            self.rules -= 1;
            let limit = 50 + self.below(200);
            schema["x-kubernetes-validations"] = json!([{
                "rule": format!("!has(self.name) || self.name != 'reserved' && size(self.name) <= {limit}"),
                "message": "name must be short and not reserved",
            }]);
        }
        schema
    }

    fn branch(&mut self, nodes: usize, depth: usize, lists: usize) -> Value {
        match self.below(6) {
            0 | 1 => {
                let mut items = self.object(nodes - 1, depth.saturating_sub(1), lists + 1);
                items["required"] = json!(["name"]);
                let mut list = json!({"type": "array", "maxItems": 64, "items": items});
                if self.below(2) == 0 {
                    list["x-kubernetes-list-type"] = "map".into();
                    list["x-kubernetes-list-map-keys"] = json!(["name"]);
                }
                self.describe(&mut list);
                list
            }
            _ => self.object(nodes, depth, lists),
        }
    }

    fn leaf(&mut self) -> Value {
        let mut leaf = match self.below(10) {
            0 => json!({"type": "integer", "format": "int32", "minimum": 0}),
            1 => json!({"type": "boolean", "default": false}),
            2 => {
                json!({"type": "array", "maxItems": 64, "items": {"type": "string"}, "x-kubernetes-list-type": "atomic"})
            }
            3 => json!({"type": "object", "maxProperties": 64, "additionalProperties": {"type": "string"}}),
            4 => {
                json!({"anyOf": [{"type": "integer"}, {"type": "string"}], "x-kubernetes-int-or-string": true})
            }
            5 => json!({"type": "string", "enum": ["Always", "Never", "OnFailure"]}),
            _ => json!({"type": "string", "maxLength": 1024}),
        };
        if self.patterns > 0 && leaf["type"] == "string" && leaf.get("enum").is_none() {
            self.patterns -= 1;
            leaf["pattern"] = PATTERNS[self.below(PATTERNS.len())].into();
        }
        self.describe(&mut leaf);
        leaf
    }

    fn describe(&mut self, schema: &mut Value) {
        if self.text > 0 {
            schema["description"] = self.description().into();
        }
    }
}
