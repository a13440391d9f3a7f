//! Volumes, reduced to which source they name.
//!
//! The order of [`VolumeSource`] is the order in which upstream looks for the type of a refused volume.

use std::{fmt, marker::PhantomData};

use serde::{Deserialize, Deserializer, de};

use crate::text::Text;

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
    sources: u64,
}

impl Volume<'_> {
    /// Whether the volume names this source.
    #[must_use]
    pub const fn has(&self, source: VolumeSource) -> bool {
        self.sources & source.bit() != 0
    }

    /// The sources named, in upstream's order.
    pub fn sources(&self) -> impl Iterator<Item = VolumeSource> + '_ {
        VolumeSource::ALL.iter().copied().filter(|&source| self.has(source))
    }

    /// What an API server of that release would not know of, it drops.
    pub fn forget(&mut self, source: VolumeSource) {
        self.sources &= !source.bit();
    }

    /// The API server's default: a volume without any source is an `emptyDir`.
    pub fn set_default_source(&mut self) {
        if self.sources == 0 {
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
                let mut volume = Volume::default();
                while let Some(key) = map.next_key::<Text<'a>>()? {
                    if key == "name" {
                        volume.name = map.next_value::<Option<Text<'a>>>()?.unwrap_or_default();
                    } else {
                        let present = map.next_value::<Option<de::IgnoredAny>>()?.is_some();
                        if let (true, Some(source)) = (present, VolumeSource::from_name(&key)) {
                            volume.sources |= source.bit();
                        }
                    }
                }
                Ok(volume)
            }
        }
        deserializer.deserialize_map(Visitor(PhantomData))
    }
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
}
