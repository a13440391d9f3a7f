//! Black-box tests of palisade-yaml.

mod deserialize;
mod edit;
mod lookup;
mod reader;
