//! The default classes of claims and Ingresses, and the finalizers of storage that is in use.
//!
//! Implements: the plugins DefaultStorageClass, DefaultIngressClass and StorageObjectInUseProtection.
//! <https://kubernetes.io/docs/reference/access-authn-authz/admission-controllers/#what-does-each-admission-controller-do>

use serde_json::{Value, json};

use crate::admission_chain::{Admission, InReview, Notes, Operation, Plugin, Request};
use crate::meta;

/// The name of the class that is the default; of several, the newest one, then the first by name.
fn default_class(request: &Request<'_>, classes: &str, annotations: &[&str]) -> Option<String> {
    let mut defaults: Vec<(String, String)> = Vec::new();
    for class in request.cluster.list(classes, "") {
        if !annotations.iter().any(|annotation| class.mentions(annotation)) {
            continue;
        }
        let class = Value::Object(class.parse());
        let own = meta::metadata(&class).and_then(|metadata| metadata.get("annotations"));
        let marked = |annotation: &&str| {
            own.and_then(|own| own.get(*annotation)).and_then(Value::as_str) == Some("true")
        };
        if annotations.iter().any(marked) {
            let created = meta::meta_text(&class, "creationTimestamp").to_owned();
            defaults.push((created, meta::meta_text(&class, "name").to_owned()));
        }
    }
    defaults.sort_by(|a, b| b.0.cmp(&a.0).then_with(|| a.1.cmp(&b.1)));
    defaults.into_iter().next().map(|(_, name)| name)
}

fn creates(request: &Request<'_>, group: &str, resource: &str) -> bool {
    request.operation == Operation::Create && request.is(group, resource)
}

/// Claims that name no class get the default one.
#[derive(Debug, Clone, Copy)]
pub struct DefaultStorageClass;

impl Plugin for DefaultStorageClass {
    fn name(&self) -> &'static str {
        "DefaultStorageClass"
    }

    fn admit(&self, request: &Request<'_>, object: &mut InReview, _: &mut Notes) -> Admission {
        const OLD: &str = "/metadata/annotations/volume.beta.kubernetes.io~1storage-class";
        if !creates(request, "", "persistentvolumeclaims") {
            return Ok(());
        }
        // An empty class is a decision too: no class.
        let named = object.pointer("/spec/storageClassName").is_some_and(|name| !name.is_null());
        if named || object.pointer(OLD).is_some() {
            return Ok(());
        }
        let marks = [
            "storageclass.kubernetes.io/is-default-class",
            "storageclass.beta.kubernetes.io/is-default-class",
        ];
        if let Some(class) = default_class(request, "storageclasses.storage.k8s.io", &marks)
            && let Some(spec) = object.get_mut("spec").and_then(Value::as_object_mut)
        {
            spec.insert("storageClassName".to_owned(), class.into());
        }
        Ok(())
    }
}

/// Ingresses that name no class get the default one.
#[derive(Debug, Clone, Copy)]
pub struct DefaultIngressClass;

impl Plugin for DefaultIngressClass {
    fn name(&self) -> &'static str {
        "DefaultIngressClass"
    }

    fn admit(&self, request: &Request<'_>, object: &mut InReview, _: &mut Notes) -> Admission {
        const OLD: &str = "/metadata/annotations/kubernetes.io~1ingress.class";
        if !creates(request, "networking.k8s.io", "ingresses") {
            return Ok(());
        }
        let named = object.pointer("/spec/ingressClassName").is_some_and(|name| !name.is_null());
        if named || object.pointer(OLD).is_some() {
            return Ok(());
        }
        let marks = ["ingressclass.kubernetes.io/is-default-class"];
        if let Some(class) = default_class(request, "ingressclasses.networking.k8s.io", &marks)
            && let Some(spec) = object.get_mut("spec").and_then(Value::as_object_mut)
        {
            spec.insert("ingressClassName".to_owned(), class.into());
        }
        Ok(())
    }
}

/// The finalizer of claims.
pub(crate) const CLAIM_FINALIZER: &str = "kubernetes.io/pvc-protection";
/// The finalizer of volumes.
pub(crate) const VOLUME_FINALIZER: &str = "kubernetes.io/pv-protection";

/// Claims and volumes stay while they are used; the controller of that name lets them go.
#[derive(Debug, Clone, Copy)]
pub struct StorageObjectInUseProtection;

impl Plugin for StorageObjectInUseProtection {
    fn name(&self) -> &'static str {
        "StorageObjectInUseProtection"
    }

    fn admit(&self, request: &Request<'_>, object: &mut InReview, _: &mut Notes) -> Admission {
        let finalizer = if creates(request, "", "persistentvolumeclaims") {
            CLAIM_FINALIZER
        } else if creates(request, "", "persistentvolumes") {
            VOLUME_FINALIZER
        } else {
            return Ok(());
        };
        meta::edit_metadata(object, |metadata| {
            let finalizers = metadata.entry("finalizers").or_insert_with(|| json!([]));
            if let Some(finalizers) = finalizers.as_array_mut()
                && !finalizers.iter().any(|known| known == finalizer)
            {
                finalizers.push(finalizer.into());
            }
        });
        Ok(())
    }
}
