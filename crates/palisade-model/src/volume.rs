//! Volumes, reduced to which source they name.
//!
//! The order of [`VolumeSource`] is the order in which upstream looks for the type of a refused volume.

use std::{fmt, marker::PhantomData};

use serde::{Deserialize, Deserializer, de};

use crate::{json::DUPLICATE, projected::IsServiceAccountToken, reading::nullable, text::Text};

macro_rules! volume_sources {
    ($($variant:ident $name:literal),+ $(,)?) => {
        /// The kind of storage behind a volume.
        #[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
        #[allow(missing_docs, reason = "the names are the API's own")]
        pub enum VolumeSource { $($variant),+ }

        impl VolumeSource {
            /// Every source, in upstream's order.
            pub const ALL: &'static [Self] = &[$(Self::$variant),+];

            /// The field's name.
            #[must_use]
            pub const fn as_str(self) -> &'static str {
                match self { $(Self::$variant => $name),+ }
            }

            fn from_name(name: &str) -> Option<Self> {
                match name { $($name => Some(Self::$variant),)+ _ => None }
            }

            const fn bit(self) -> u64 { 1 << self as u64 }
        }
    };
}

volume_sources! {
    ConfigMap "configMap",
    Csi "csi",
    DownwardApi "downwardAPI",
    EmptyDir "emptyDir",
    Ephemeral "ephemeral",
    Image "image",
    PersistentVolumeClaim "persistentVolumeClaim",
    Projected "projected",
    Secret "secret",
    HostPath "hostPath",
    GcePersistentDisk "gcePersistentDisk",
    AwsElasticBlockStore "awsElasticBlockStore",
    GitRepo "gitRepo",
    Nfs "nfs",
    Iscsi "iscsi",
    Glusterfs "glusterfs",
    Rbd "rbd",
    FlexVolume "flexVolume",
    Cinder "cinder",
    Cephfs "cephfs",
    Flocker "flocker",
    Fc "fc",
    AzureFile "azureFile",
    VsphereVolume "vsphereVolume",
    Quobyte "quobyte",
    AzureDisk "azureDisk",
    PhotonPersistentDisk "photonPersistentDisk",
    PortworxVolume "portworxVolume",
    ScaleIo "scaleIO",
    Storageos "storageos",
}

/// An entry of `spec.volumes`.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Volume<'a> {
    /// The volume's name.
    pub name: Text<'a>,
    /// The driver of a `flexVolume`; empty without one.
    pub flex_driver: Text<'a>,
    /// The path of a `hostPath`; empty without one.
    pub host_path: Text<'a>,
    /// Whether a `projected` volume holds nothing but what is injected for a service account's token.
    pub is_service_account_token: bool,
    sources: u64,
    has_unknown_source: bool,
}

impl Volume<'_> {
    /// Whether the volume names this source.
    #[must_use]
    pub const fn has(&self, source: VolumeSource) -> bool {
        self.sources & source.bit() != 0
    }

    /// Whether the volume names a source that this release of Palisade does not know.
    #[must_use]
    pub const fn has_unknown_source(&self) -> bool {
        self.has_unknown_source
    }

    /// Whether the volume names more than one source, which no API server stores.
    #[must_use]
    pub const fn has_several_sources(&self) -> bool {
        self.sources.count_ones() > 1 || (self.sources != 0 && self.has_unknown_source)
    }

    /// The sources named, in upstream's order.
    pub fn sources(&self) -> impl Iterator<Item = VolumeSource> + '_ {
        VolumeSource::ALL.iter().copied().filter(|&source| self.has(source))
    }

    /// What an API server of that release does not have, it drops.
    pub fn forget(&mut self, source: VolumeSource) {
        self.sources &= !source.bit();
    }

    /// The API server's default: a volume without any source is an `emptyDir`.
    pub fn set_default_source(&mut self) {
        // A source that this release of Palisade does not recognize is not an empty folder: it stays unknown, and is judged as that.
        if self.sources == 0 && !self.has_unknown_source {
            self.sources = VolumeSource::EmptyDir.bit();
        }
    }
}

impl<'de: 'a, 'a> Deserialize<'de> for Volume<'a> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct Visitor<'a>(PhantomData<&'a ()>);
        impl<'de: 'a, 'a> de::Visitor<'de> for Visitor<'a> {
            type Value = Volume<'a>;
            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("a volume")
            }
            fn visit_map<A: de::MapAccess<'de>>(self, mut map: A) -> Result<Self::Value, A::Error> {
                let (mut volume, mut seen, mut named) = (Volume::default(), 0_u64, false);
                while let Some(key) = map.next_key::<Text<'a>>()? {
                    let source = VolumeSource::from_name(&key);
                    let is_name = key == "name";
                    if source.is_some_and(|source| seen & source.bit() != 0) || (is_name && named) {
                        return Err(de::Error::custom(format!("{DUPLICATE}{key}`")));
                    }
                    seen |= source.map_or(0, VolumeSource::bit);
                    if is_name {
                        named = true;
                        volume.name = map.next_value::<Option<Text<'a>>>()?.unwrap_or_default();
                        continue;
                    }
                    let present = match source {
                        Some(VolumeSource::FlexVolume) => {
                            map.next_value::<Option<FlexVolume<'a>>>()?.is_some_and(|flex| {
                                volume.flex_driver = flex.driver;
                                true
                            })
                        }
                        Some(VolumeSource::HostPath) => {
                            map.next_value::<Option<HostPath<'a>>>()?.is_some_and(|host| {
                                volume.host_path = host.path;
                                true
                            })
                        }
                        Some(VolumeSource::Projected) => {
                            map.next_value::<Option<Projected>>()?.is_some_and(|projected| {
                                volume.is_service_account_token = projected.sources.0;
                                true
                            })
                        }
                        _ => map.next_value::<Option<de::IgnoredAny>>()?.is_some(),
                    };
                    match source {
                        Some(source) if present => volume.sources |= source.bit(),
                        Some(_) => {}
                        None => volume.has_unknown_source |= present,
                    }
                }
                Ok(volume)
            }
        }
        deserializer.deserialize_map(Visitor(PhantomData))
    }
}

#[derive(Default, Deserialize)]
#[serde(default)]
struct FlexVolume<'a> {
    #[serde(borrow, deserialize_with = "nullable")]
    driver: Text<'a>,
}

#[derive(Default, Deserialize)]
#[serde(default)]
struct HostPath<'a> {
    #[serde(borrow, deserialize_with = "nullable")]
    path: Text<'a>,
}

#[derive(Default, Deserialize)]
#[serde(default)]
struct Projected {
    #[serde(deserialize_with = "nullable")]
    sources: IsServiceAccountToken,
}

#[cfg(test)]
mod tests {
    use super::{Volume, VolumeSource};

    #[test]
    fn counts_a_source_as_named_unless_it_is_null() {
        for (volume, expected) in [
            (r#"{"name":"v"}"#, &[][..]),
            (r#"{"name":"v","hostPath":{}}"#, &[VolumeSource::HostPath]),
            (r#"{"name":"v","hostPath":null}"#, &[]),
            (r#"{"nfs":{},"secret":{},"other":1}"#, &[VolumeSource::Secret, VolumeSource::Nfs]),
        ] {
            let read: Volume<'_> = serde_json::from_str(volume).unwrap();
            assert_eq!(read.sources().collect::<Vec<_>>(), expected, "{volume}");
        }
    }

    #[test]
    fn rejects_a_key_that_comes_twice() {
        for volume in [
            r#"{"name":"v","hostPath":{"path":"/"},"hostPath":null}"#,
            r#"{"emptyDir":null,"emptyDir":{}}"#,
            r#"{"flexVolume":{"driver":"a"},"flexVolume":{"options":{}}}"#,
            r#"{"name":"v","name":"w"}"#,
        ] {
            let error = serde_json::from_str::<Volume<'_>>(volume).unwrap_err().to_string();
            assert!(error.starts_with("duplicate field `"), "{volume}: {error}");
        }
    }

    #[test]
    fn reads_what_constraints_check_of_a_source() {
        let read =
            |volume: &str| serde_json::from_str::<Volume<'_>>(volume).map(|v| v.flex_driver.to_string());
        assert_eq!(read(r#"{"flexVolume":{"driver":"example/lvm"}}"#).unwrap(), "example/lvm");
        let path = |volume: &str| serde_json::from_str::<Volume<'_>>(volume).map(|v| v.host_path.to_string());
        assert_eq!(path(r#"{"hostPath":{"path":"/var/log","type":""}}"#).unwrap(), "/var/log");
        assert_eq!(path(r#"{"hostPath":{}}"#).unwrap(), "");
        assert!(path(r#"{"hostPath":{"path":7}}"#).is_err());
        assert_eq!(read(r#"{"flexVolume":null}"#).unwrap(), "");
        assert_eq!(read(r#"{"flexVolume":{"driver":null,"options":{"a":"b"}}}"#).unwrap(), "");
    }
}
