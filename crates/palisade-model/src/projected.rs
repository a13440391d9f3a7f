//! Whether a projected volume is the one that is injected for a service account's token.
//!
//! Implements: the exception of OpenShift's `SecurityContextConstraints` by which such a volume counts as a
//! `secret`: a token without an audience, the cluster's two CA bundles, and the name of the namespace. Decided
//! while reading, so that a volume costs one bit instead of a tree.

use std::{fmt, marker::PhantomData};

use serde::{Deserialize, Deserializer, de};

use crate::{reading::nullable, text::Text};

/// The verdict over `projected.sources`. A volume without any source holds nothing else either.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct IsServiceAccountToken(pub(crate) bool);

impl Default for IsServiceAccountToken {
    fn default() -> Self {
        Self(true)
    }
}

impl<'de> Deserialize<'de> for IsServiceAccountToken {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        Entries::<Source<'de>>::deserialize(deserializer).map(|sources| Self(sources.all_expected))
    }
}

/// Something an entry of a list may be or not.
trait Entry: Default {
    fn is_expected(&self) -> bool;
}

/// What matters about a list, without the list.
struct Entries<T> {
    count: usize,
    first: T,
    all_expected: bool,
}

impl<T: Entry> Default for Entries<T> {
    fn default() -> Self {
        Self { count: 0, first: T::default(), all_expected: true }
    }
}

impl<'de, T: Deserialize<'de> + Entry> Deserialize<'de> for Entries<T> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct Visitor<T>(PhantomData<T>);
        impl<'de, T: Deserialize<'de> + Entry> de::Visitor<'de> for Visitor<T> {
            type Value = Entries<T>;
            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("a list")
            }
            fn visit_seq<A: de::SeqAccess<'de>>(self, mut list: A) -> Result<Self::Value, A::Error> {
                let mut entries = Entries::default();
                while let Some(entry) = list.next_element::<Option<T>>()? {
                    let entry = entry.unwrap_or_default();
                    entries.all_expected &= entry.is_expected();
                    if entries.count == 0 {
                        entries.first = entry;
                    }
                    entries.count += 1;
                }
                Ok(entries)
            }
        }
        deserializer.deserialize_seq(Visitor(PhantomData))
    }
}

#[derive(Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
struct Source<'a> {
    #[serde(borrow)]
    service_account_token: Option<Token<'a>>,
    #[serde(borrow)]
    config_map: Option<ConfigMap<'a>>,
    #[serde(borrow, rename = "downwardAPI")]
    downward_api: Option<DownwardApi<'a>>,
}

impl Entry for Source<'_> {
    fn is_expected(&self) -> bool {
        let Self { service_account_token: token, config_map, downward_api } = self;
        (token.is_some() || config_map.is_some() || downward_api.is_some())
            && token.as_ref().is_none_or(|token| token.path == "token" && token.audience.is_empty())
            && config_map.as_ref().is_none_or(ConfigMap::is_ca_bundle)
            && downward_api.as_ref().is_none_or(|api| api.items.all_expected)
    }
}

#[derive(Default, Deserialize)]
#[serde(default)]
struct Token<'a> {
    #[serde(borrow, deserialize_with = "nullable")]
    path: Text<'a>,
    #[serde(borrow, deserialize_with = "nullable")]
    audience: Text<'a>,
}

#[derive(Default, Deserialize)]
#[serde(default)]
struct ConfigMap<'a> {
    #[serde(borrow, deserialize_with = "nullable")]
    name: Text<'a>,
    #[serde(borrow, deserialize_with = "nullable")]
    items: Entries<KeyToPath<'a>>,
}

impl ConfigMap<'_> {
    fn is_ca_bundle(&self) -> bool {
        let file = match self.name.as_str() {
            "kube-root-ca.crt" => "ca.crt",
            "openshift-service-ca.crt" => "service-ca.crt",
            _ => return false,
        };
        self.items.count == 1 && self.items.first.key == file && self.items.first.path == file
    }
}

#[derive(Default, Deserialize)]
#[serde(default)]
struct KeyToPath<'a> {
    #[serde(borrow, deserialize_with = "nullable")]
    key: Text<'a>,
    #[serde(borrow, deserialize_with = "nullable")]
    path: Text<'a>,
}

impl Entry for KeyToPath<'_> {
    fn is_expected(&self) -> bool {
        true
    }
}

#[derive(Default, Deserialize)]
#[serde(default)]
struct DownwardApi<'a> {
    #[serde(borrow, deserialize_with = "nullable")]
    items: Entries<DownwardFile<'a>>,
}

#[derive(Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
struct DownwardFile<'a> {
    #[serde(borrow, deserialize_with = "nullable")]
    path: Text<'a>,
    #[serde(borrow)]
    field_ref: Option<FieldRef<'a>>,
}

impl Entry for DownwardFile<'_> {
    fn is_expected(&self) -> bool {
        // An API server defaults `apiVersion` to v1.
        self.path == "namespace"
            && self.field_ref.as_ref().is_some_and(|field| {
                field.field_path == "metadata.namespace"
                    && (field.api_version == "v1" || field.api_version.is_empty())
            })
    }
}

#[derive(Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
struct FieldRef<'a> {
    #[serde(borrow, deserialize_with = "nullable")]
    api_version: Text<'a>,
    #[serde(borrow, deserialize_with = "nullable")]
    field_path: Text<'a>,
}

#[cfg(test)]
mod tests {
    use super::IsServiceAccountToken;

    #[test]
    fn accepts_what_is_injected_and_nothing_else() {
        let root_ca =
            r#"{"configMap":{"items":[{"key":"ca.crt","path":"ca.crt"}],"name":"kube-root-ca.crt"}}"#;
        let service_ca = r#"{"configMap":{"name":"openshift-service-ca.crt",
                              "items":[{"key":"service-ca.crt","path":"service-ca.crt"}]}}"#;
        let namespace = r#"{"downwardAPI":{"items":[{"path":"namespace",
                             "fieldRef":{"apiVersion":"v1","fieldPath":"metadata.namespace"}}]}}"#;
        let token = r#"{"serviceAccountToken":{"path":"token","expirationSeconds":3607}}"#;
        for (case, sources, expected) in [
            ("nothing at all", "[]".to_owned(), true),
            ("as injected", format!("[{token},{root_ca},{namespace},{service_ca}]"), true),
            ("an audience", r#"[{"serviceAccountToken":{"path":"token","audience":"x"}}]"#.to_owned(), false),
            ("another path", r#"[{"serviceAccountToken":{"path":"t"}}]"#.to_owned(), false),
            ("a secret besides", format!(r#"[{token},{{"secret":{{"name":"s"}}}}]"#), false),
            ("the whole config map", r#"[{"configMap":{"name":"kube-root-ca.crt"}}]"#.to_owned(), false),
            ("another config map", root_ca.replace("kube-root", "my").replacen('{', "[{", 1) + "]", false),
            ("another field", format!("[{}]", namespace.replace("metadata.namespace", "spec.x")), false),
            ("no field", r#"[{"downwardAPI":{"items":[{"path":"namespace"}]}}]"#.to_owned(), false),
            ("a null entry", format!("[{token},null]"), false),
        ] {
            let read: IsServiceAccountToken = serde_json::from_str(&sources).unwrap();
            assert_eq!(read.0, expected, "{case}");
        }
    }
}
