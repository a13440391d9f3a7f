//! Which drivers of flex volumes a pod may use.
//!
//! Implements: `allowedFlexVolumes`. An empty list allows every driver; without the volume type `flexVolume` the
//! list allows all.

use palisade_base::{field_error::FieldError, field_path::FieldPath, go::Quoted};
use palisade_model::volume::{Volume, VolumeSource};

use super::Place;
use crate::scc::constraint::Constraint;

pub(in crate::scc) fn validate(
    constraint: &Constraint,
    place: Place<'_>,
    volumes: &[Volume<'_>],
    problems: &mut Vec<FieldError>,
) {
    let allowed = &constraint.allowed_flex_volumes;
    if allowed.is_empty() || !constraint.allows_volume("flexVolume") {
        return;
    }
    for (index, volume) in volumes.iter().enumerate() {
        let driver = volume.flex_driver.as_str();
        if !volume.has(VolumeSource::FlexVolume) || allowed.iter().any(|own| own.driver == driver) {
            continue;
        }
        let at = FieldPath::of(&["spec", "volumes"]).index(index).fields(&["flexVolume", "driver"]);
        let called = place.name(&format!("volumes[{index}].driver"));
        let detail = "Flexvolume driver is not allowed to be used";
        problems.push(FieldError::invalid(at, Quoted(driver), detail).called(called));
    }
}
