//! Zero values as Go's `encoding/json` writes them, and which values it leaves out.
//!
//! A Go struct that is no pointer is written even if nothing in it is set (`"status":{}`), nil lists without
//! `omitempty` are written as `null`: both show in responses and decide which fields a create owns.

use palisade_base::version::KubeVersion;
use serde_json::{Map, Value};

use super::{Field, Struct, Type, TypeKind, TypeRef};

impl Field {
    /// Whether there is a release in which [`Self::zero_value`] is something.
    pub(super) fn may_be_written_unset(&self) -> bool {
        if self.ty.pointer {
            return !self.omit_empty;
        }
        match self.ty.kind {
            TypeKind::Struct { .. }
            | TypeKind::Time
            | TypeKind::MicroTime
            | TypeKind::Any
            | TypeKind::Quantity => true,
            _ => !self.omit_empty,
        }
    }

    /// Whether Go writes the field when nothing was set, and as what.
    pub(crate) fn zero_value(&self, of: TypeRef<'_>, version: KubeVersion) -> Option<Value> {
        if !self.exists_in(version) {
            return None;
        }
        if self.ty.pointer {
            return (!self.omit_empty).then_some(Value::Null);
        }
        match &self.ty.kind {
            TypeKind::Struct { .. } if self.omit_zero && version.at_least(34) => None,
            TypeKind::Struct { .. } => {
                let inner = of.with(&self.ty);
                Some(Value::Object(
                    inner.as_struct().map(|s| s.zero_fields(inner, version)).unwrap_or_default(),
                ))
            }
            TypeKind::Time | TypeKind::MicroTime => {
                (!(self.omit_zero && version.at_least(34))).then_some(Value::Null)
            }
            // A struct as well, that writes a text.
            TypeKind::Quantity => Some(zero_scalar(&TypeKind::Quantity)),
            kind if self.omit_empty => {
                // `omitempty` does nothing for RawExtension, which is a struct that writes `null`.
                matches!(kind, TypeKind::Any).then_some(Value::Null)
            }
            kind => Some(zero_scalar(kind)),
        }
    }

    /// What server-side apply takes for a list key that an item lacks: the default, or the zero value, which is the default
    /// that upstream's OpenAPI declares for the scalars that Go always writes. Fields of custom kinds have no such default.
    pub(crate) fn key_default(&self) -> Option<Value> {
        if self.default.is_some() || self.omit_empty || self.ty.pointer {
            return self.default.clone();
        }
        match &self.ty.kind {
            kind @ (TypeKind::String | TypeKind::Bool | TypeKind::Int(_) | TypeKind::Float) => {
                Some(zero_scalar(kind))
            }
            _ => None,
        }
    }

    /// Whether Go leaves this value of the field out.
    pub(crate) fn omits(&self, value: &Value) -> bool {
        if self.ty.pointer {
            return self.omit_empty && value.is_null();
        }
        self.omit_empty && is_empty(&self.ty, value)
    }
}

fn zero_scalar(kind: &TypeKind) -> Value {
    match kind {
        TypeKind::String => Value::String(String::new()),
        TypeKind::Bool => Value::Bool(false),
        TypeKind::Int(_) | TypeKind::Float | TypeKind::IntOrString => Value::from(0),
        TypeKind::Quantity => Value::String("0".into()),
        _ => Value::Null,
    }
}

fn is_empty(ty: &Type, value: &Value) -> bool {
    match (&ty.kind, value) {
        // Structs and times are never empty for `omitempty`.
        (TypeKind::Struct { .. } | TypeKind::Time | TypeKind::MicroTime | TypeKind::Any, _) => false,
        (TypeKind::Quantity | TypeKind::IntOrString, value) => value.is_null(),
        (_, Value::Null) => true,
        (_, Value::Bool(b)) => !b,
        (_, Value::Number(n)) => n.as_f64() == Some(0.0),
        (_, Value::String(s)) => s.is_empty(),
        (_, Value::Array(items)) => items.is_empty(),
        (_, Value::Object(map)) => map.is_empty(),
    }
}

impl Struct {
    /// The fields Go writes for a zero value.
    pub(crate) fn zero_fields(&self, of: TypeRef<'_>, version: KubeVersion) -> Map<String, Value> {
        let mut object = Map::new();
        for field in self.written_unset() {
            if let Some(value) = field.zero_value(of, version) {
                object.insert(field.name.to_string(), value);
            }
        }
        object
    }
}

impl TypeRef<'_> {
    /// The zero value of the type.
    #[must_use]
    pub fn zero(self, version: KubeVersion) -> Value {
        match self.as_struct() {
            Some(s) => Value::Object(s.zero_fields(self, version)),
            None => zero_scalar(&self.ty.kind),
        }
    }

    /// Brings a value that is already well typed into the form Go writes: empty values that `omitempty` drops are
    /// dropped, missing ones that are always written are added. Functions that edit objects call this once at the end.
    ///
    /// With `stored`, what a protobuf round trip through storage does is done as well: empty lists and maps become
    /// `null`.
    pub fn canonicalize(self, value: &mut Value, version: KubeVersion, stored: bool) {
        match (&self.ty.kind, value) {
            (TypeKind::Struct { .. }, Value::Object(object)) => {
                let Some(s) = self.as_struct() else { return };
                object.retain(|key, value| {
                    let Some(field) = s.field(key) else { return s.preserve_unknown };
                    let is_plain_struct =
                        matches!(field.ty.kind, TypeKind::Struct { .. }) && !field.ty.pointer;
                    if value.is_null() && is_plain_struct {
                        *value = Value::Object(Map::new());
                    }
                    if stored && is_empty_collection(&field.ty, value) {
                        *value = Value::Null;
                    }
                    self.with(&field.ty).canonicalize(value, version, stored);
                    !field.omits(value)
                });
                for field in s.written_unset() {
                    if !object.contains_key(&*field.name)
                        && let Some(zero) = field.zero_value(self, version)
                    {
                        object.insert(field.name.to_string(), zero);
                    }
                }
            }
            (TypeKind::List { item, .. }, Value::Array(items)) => {
                if matches!(item.kind, TypeKind::Struct { .. } | TypeKind::List { .. } | TypeKind::Map { .. })
                {
                    for value in items {
                        self.with(item).canonicalize(value, version, stored);
                    }
                }
            }
            (TypeKind::Map { item, .. }, Value::Object(map)) => {
                if matches!(item.kind, TypeKind::Struct { .. } | TypeKind::List { .. } | TypeKind::Map { .. })
                {
                    for value in map.values_mut() {
                        self.with(item).canonicalize(value, version, stored);
                    }
                }
            }
            _ => {}
        }
    }
}

fn is_empty_collection(ty: &Type, value: &Value) -> bool {
    match (&ty.kind, value) {
        (TypeKind::List { .. }, Value::Array(items)) => items.is_empty(),
        (TypeKind::Map { .. }, Value::Object(map)) => map.is_empty(),
        _ => false,
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::super::{Type, TypeKind, TypeRef, builtin};
    use super::*;

    fn of<'a>(name: &str, ty: &'a mut Type) -> TypeRef<'a> {
        let id = builtin().by_name(name).unwrap().0;
        *ty = Type::plain(TypeKind::Struct { id, atomic: false });
        TypeRef { schema: builtin(), ty }
    }

    #[test]
    fn zero_values_are_what_go_writes() {
        let mut ty = Type::plain(TypeKind::Any);
        let latest = KubeVersion::LATEST;
        assert_eq!(
            of("apps.Deployment", &mut ty).zero(latest),
            json!({"metadata": {}, "spec": {"selector": null, "strategy": {}, "template": {"metadata": {},
                   "spec": {"containers": null}}}, "status": {}})
        );
        assert_eq!(of("rbac.Role", &mut ty).zero(latest), json!({"metadata": {}, "rules": null}));
        assert_eq!(
            of("core.PodTemplate", &mut ty).zero(KubeVersion::v1(33)),
            json!({"metadata": {"creationTimestamp": null},
                   "template": {"metadata": {"creationTimestamp": null}, "spec": {"containers": null}}})
        );
    }

    #[test]
    fn drops_what_go_drops() {
        let mut ty = Type::plain(TypeKind::Any);
        let pod = of("core.PodSpec", &mut ty);
        let mut spec = json!({"containers": [{"name": "c", "stdin": false, "args": []}], "hostNetwork": false,
                              "shareProcessNamespace": false, "nodeSelector": {}, "hostUsers": null});
        pod.canonicalize(&mut spec, KubeVersion::LATEST, false);
        assert_eq!(
            spec,
            json!({"containers": [{"name": "c", "resources": {}}], "shareProcessNamespace": false})
        );
    }
}
