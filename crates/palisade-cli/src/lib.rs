//! Palisade.
