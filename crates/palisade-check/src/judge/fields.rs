//! Fields that no API server has, and values of types that none accepts.
//!
//! An API server drops an unknown field and admits the rest, so that a misspelt `securityContext` protects nothing.
//! Implements: "Field validation" of the Kubernetes API concepts, in its strict form, with the nearest known name.
//! <https://kubernetes.io/docs/reference/using-api/api-concepts/#field-validation>

use std::{collections::HashMap, sync::LazyLock};

use palisade_apimachinery::schema::{EXTENSION, Field, Type, TypeKind, TypeRef, builtin};
use palisade_base::{
    field_path::{FieldPath, PathStep},
    quantity::Quantity,
    version::KubeVersion,
};
use palisade_model::{
    spelling::nearest,
    workload::{WORKLOADS, WorkloadKind},
};
use palisade_yaml::{NodeRef, Resolved, View};

use super::Context;
use crate::diagnostic::{Code, Diagnostic, Severity};

/// The types of the workloads; of custom ones only the template is known.
static TYPES: LazyLock<HashMap<(&'static str, &'static str), Type>> = LazyLock::new(|| {
    let named = |name: &str| {
        let (id, _) = builtin().by_name(name)?;
        Some(Type::plain(TypeKind::Struct { id, atomic: false }))
    };
    let types = WORKLOADS.iter().filter_map(|workload| {
        let ty = match (workload.built_in, workload.group) {
            (true, "") => named(&format!("core.{}", workload.kind)),
            (true, "extensions") => named(&format!("apps.{}", workload.kind)),
            (true, group) => named(&format!("{group}.{}", workload.kind)),
            (false, _) => named("core.PodTemplateSpec"),
        };
        Some(((workload.group, workload.kind), ty?))
    });
    types.collect()
});

/// Where the known type of a workload begins, and the type.
fn root(workload: &WorkloadKind) -> Option<(&'static [&'static str], TypeRef<'static>)> {
    // A Revision is a pod to us, but not in every field.
    if !workload.built_in && workload.path.is_empty() {
        return None;
    }
    let ty = TYPES.get(&(workload.group, workload.kind))?;
    let path = if workload.built_in { &[][..] } else { workload.path };
    Some((path, TypeRef { schema: builtin(), ty }))
}

/// Reports what an API server would drop or reject in a workload.
pub(super) fn report(context: &Context<'_, '_>, object: NodeRef<'_>, findings: &mut Vec<Diagnostic>) {
    let Some((path, ty)) = root(context.workload) else { return };
    let Some(node) = path.iter().try_fold(object, |node, field| node.get(field)) else { return };
    let mut walk = Walk {
        context,
        release: context.settings.compat.api,
        path: path.iter().map(|field| PathStep::Field((*field).into())).collect(),
        findings,
    };
    // A custom template may have fields that its operator adds; metadata and spec are those of a pod.
    walk.value(node, ty);
}

struct Walk<'c, 's, 'f> {
    context: &'c Context<'c, 's>,
    release: KubeVersion,
    path: Vec<PathStep>,
    findings: &'f mut Vec<Diagnostic>,
}

impl Walk<'_, '_, '_> {
    fn value(&mut self, node: NodeRef<'_>, of: TypeRef<'_>) {
        let node = node.target();
        match (node.view(), &of.ty.kind) {
            (View::Scalar(Resolved::Null), _) | (_, TypeKind::Any | TypeKind::SchemaOr) => {}
            (View::Mapping(entries), TypeKind::Struct { .. }) => {
                let Some(known) = of.as_struct() else { return };
                for entry in entries {
                    match known.field(&entry.key) {
                        Some(field) if field.exists_in(self.release) => {
                            self.path.push(PathStep::Field(field.name.clone()));
                            self.value(entry.value, of.with(&field.ty));
                            self.path.pop();
                        }
                        Some(field) => self.other_release(field, entry.key_node),
                        None => {
                            let names = known.fields.iter().filter(|field| field.exists_in(self.release));
                            let near = nearest(&entry.key, names.map(|field| &*field.name));
                            self.unknown(&entry.key, near, entry.key_node);
                        }
                    }
                }
            }
            (View::Mapping(entries), TypeKind::Map { item, .. }) => {
                for entry in entries {
                    self.path.push(PathStep::Key(entry.key.clone().into_owned()));
                    self.value(entry.value, of.with(item));
                    self.path.pop();
                }
            }
            (View::Sequence(items), TypeKind::List { item, .. }) => {
                for (index, value) in items.into_iter().enumerate() {
                    self.path.push(PathStep::Index(index));
                    self.value(value, of.with(item));
                    self.path.pop();
                }
            }
            (View::Scalar(Resolved::Str(text)), TypeKind::Quantity) => {
                if Quantity::parse(text).is_err() {
                    let found = format!("the string {text:?}");
                    self.wrong_type(node, &found, "a quantity such as 500m or 128Mi");
                }
            }
            (View::Scalar(value), kind) => {
                if let Some(wanted) = mismatch(value, kind) {
                    self.wrong_type(node, scalar_name(value), wanted);
                }
            }
            (View::Mapping(_), kind) => self.wrong_type(node, "a mapping", type_name(kind)),
            (View::Sequence(_), kind) => self.wrong_type(node, "a list", type_name(kind)),
        }
    }

    fn here(&self, last: Option<PathStep>) -> FieldPath {
        FieldPath::from(self.path.iter().cloned().chain(last).collect::<Vec<_>>())
    }

    fn finding(
        &self,
        code: &'static str,
        message: String,
        node: NodeRef<'_>,
        last: Option<PathStep>,
    ) -> Diagnostic {
        let label = self.context.source.label(node.span(), "");
        let finding = Diagnostic::error(Code::of(code), self.context.file, message).at(label);
        Diagnostic { path: Some(self.here(last).to_string()), ..finding }
    }

    fn unknown(&mut self, key: &str, near: Option<&str>, node: NodeRef<'_>) {
        let last = PathStep::Field(key.to_owned().into());
        let kind = self.context.workload.kind;
        let finding = self
            .finding("api/unknown-field", format!("unknown field {key:?}"), node, Some(last))
            .because(format!("an API server drops it from this {kind}, and strict validation rejects it"));
        self.findings.push(match near {
            Some(near) => finding.help(format!("did you mean {near}?")),
            None => finding,
        });
    }

    /// A field that another release has: this one drops it.
    fn other_release(&mut self, field: &Field, node: NodeRef<'_>) {
        let (release, name) = (format!("v1.{}", self.release.minor()), &*field.name);
        let extension = field.since == EXTENSION;
        let message = if extension {
            format!("Kubernetes has no field {name:?}: it is one of Palisade's extensions")
        } else if self.release.at_least(field.since) {
            format!("{release} no longer has the field {name:?}: it went with v1.{}", field.until)
        } else {
            format!("{release} does not have the field {name:?} yet: it came with v1.{}", field.since)
        };
        let last = PathStep::Field(field.name.clone());
        let kind = self.context.workload.kind;
        let finding = self
            .finding("api/other-release", message, node, Some(last))
            .because(format!("the API server drops it from this {kind}"));
        let finding = Diagnostic { severity: Severity::Warning, ..finding };
        self.findings.push(if extension {
            finding.help("check with --kubernetes-version extended")
        } else {
            finding
        });
    }

    fn wrong_type(&mut self, node: NodeRef<'_>, found: &str, wanted: &str) {
        let message = format!("{} is {found}, and must be {wanted}", self.here(None));
        let kind = self.context.workload.kind;
        let finding = self
            .finding("api/type", message, node, None)
            .because(format!("an API server cannot read this {kind}"));
        self.findings.push(finding);
    }
}

const fn scalar_name(value: Resolved<'_>) -> &'static str {
    match value {
        Resolved::Null => "null",
        Resolved::Bool(_) => "a boolean",
        Resolved::Int(_) | Resolved::UInt(_) | Resolved::Float(_) => "a number",
        Resolved::Str(_) => "a string",
    }
}

const fn type_name(kind: &TypeKind) -> &'static str {
    match kind {
        TypeKind::String | TypeKind::Bytes | TypeKind::Time | TypeKind::MicroTime => "a string",
        TypeKind::Bool => "true or false",
        TypeKind::Int(_) => "a whole number",
        TypeKind::Float => "a number",
        TypeKind::Quantity => "a quantity",
        TypeKind::IntOrString => "a whole number or a string",
        TypeKind::List { .. } => "a list",
        TypeKind::Any | TypeKind::SchemaOr | TypeKind::Struct { .. } | TypeKind::Map { .. } => "a mapping",
    }
}

/// What a scalar should have been, if it is of the wrong type.
fn mismatch(value: Resolved<'_>, kind: &TypeKind) -> Option<&'static str> {
    let fits = match value {
        Resolved::Null => true,
        Resolved::Bool(_) => matches!(kind, TypeKind::Bool),
        Resolved::Str(_) => matches!(
            kind,
            TypeKind::String
                | TypeKind::Bytes
                | TypeKind::IntOrString
                | TypeKind::Quantity
                | TypeKind::Time
                | TypeKind::MicroTime
        ),
        Resolved::Int(number) => match kind {
            TypeKind::Int(32) | TypeKind::IntOrString => i32::try_from(number).is_ok(),
            kind => matches!(kind, TypeKind::Int(_) | TypeKind::Quantity | TypeKind::Float),
        },
        // Kubernetes reads `2.0` as 2.
        Resolved::Float(number) if number.trunc().to_bits() == number.to_bits() => {
            matches!(kind, TypeKind::Int(_) | TypeKind::Quantity | TypeKind::Float)
        }
        Resolved::UInt(_) | Resolved::Float(_) => matches!(kind, TypeKind::Quantity | TypeKind::Float),
    };
    (!fits).then(|| type_name(kind))
}
