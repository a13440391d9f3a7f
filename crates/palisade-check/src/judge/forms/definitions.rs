//! Where the schemas of custom resource definitions have pods.

use palisade_kustomize::tree::Node;
use palisade_yaml::{Limits, parse};

use super::Configured;

/// The deepest field that is looked at.
const MAX_DEPTH: usize = 24;

/// The kinds that the definitions in a text define, with the paths at which they hold pods.
#[must_use]
pub fn definitions_of(text: &str) -> Vec<Configured> {
    let parsed = parse(text, &Limits::default());
    let mut found = Vec::new();
    for document in &parsed.documents {
        let Some(root) = Node::read(0, document.root()) else { continue };
        let items = root.get("items").map(Node::items).unwrap_or_default();
        for object in std::iter::once(&root).chain(items) {
            if object.text(&["kind"]) == "CustomResourceDefinition" {
                definition(object, &mut found);
            }
        }
    }
    found.sort_by(|a, b| (&a.group, &a.kind, &a.path).cmp(&(&b.group, &b.kind, &b.path)));
    found.dedup();
    found
}

fn definition(object: &Node, found: &mut Vec<Configured>) {
    let (group, kind) = (object.text(&["spec", "group"]), object.text(&["spec", "names", "kind"]));
    let versions = object.at(&["spec", "versions"]).map(Node::items).unwrap_or_default();
    let schemas = versions.iter().filter_map(|version| version.at(&["schema", "openAPIV3Schema"]));
    let common = object.at(&["spec", "validation", "openAPIV3Schema"]);
    let mut paths = Vec::new();
    for schema in schemas.chain(common) {
        walk(schema, &mut Vec::new(), &mut paths);
    }
    found.extend(paths.into_iter().map(|path| Configured {
        group: group.to_owned(),
        kind: kind.to_owned(),
        path,
        is_of_schema: true,
    }));
}

/// Whether a schema is that of a pod's specification: a list of containers with names, images and security contexts.
fn is_pod_spec(schema: &Node) -> bool {
    let container = schema.at(&["properties", "containers", "items", "properties"]);
    container.is_some_and(|fields| {
        fields.get("name").is_some()
            && (fields.get("image").is_some() || fields.get("securityContext").is_some())
    })
}

fn walk(schema: &Node, path: &mut Vec<String>, found: &mut Vec<String>) {
    if path.len() > MAX_DEPTH {
        return;
    }
    if is_pod_spec(schema) {
        found.push(path.join("."));
        return;
    }
    let properties = schema.get("properties").map(Node::entries).unwrap_or_default();
    for (name, field) in properties {
        // Of a template the annotations count as well.
        let spec = field.at(&["properties", "spec"]).filter(|spec| is_pod_spec(spec));
        path.push(name.clone());
        if spec.is_some() && field.at(&["properties", "metadata"]).is_some() {
            found.push(path.join("."));
        } else {
            walk(field, path, found);
        }
        path.pop();
    }
    for items in ["items", "additionalProperties"] {
        if let Some(items) = schema.get(items) {
            path.push("*".to_owned());
            walk(items, path, found);
            path.pop();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::definitions_of;

    #[test]
    fn finds_templates_and_specifications_in_schemas() {
        let pod = "{properties: {containers: {type: array, items: {properties: {name: {}, image: {}}}}}}";
        let text = format!(
            "apiVersion: apiextensions.k8s.io/v1\nkind: CustomResourceDefinition\nspec:\n  group: example.com\n  names: {{kind: App}}\n  versions:\n  - schema:\n      openAPIV3Schema:\n        properties:\n          spec:\n            properties:\n              template: {{properties: {{metadata: {{}}, spec: {pod}}}}}\n              pod: {pod}\n              groups: {{items: {{properties: {{podSpec: {pod}}}}}}}\n              roles: {{additionalProperties: {pod}}}\n              other: {{properties: {{containers: {{type: integer}}}}}}\n"
        );
        let paths: Vec<String> = definitions_of(&text).into_iter().map(|found| found.path).collect();
        assert_eq!(paths, ["spec.groups.*.podSpec", "spec.pod", "spec.roles.*", "spec.template"]);
    }
}
