//! Black-box tests of palisade-yaml.

mod deserialize;
mod lookup;
mod reader;
