//! Black-box tests of palisade-yaml.

mod deserialize;
mod edit;
mod generate;
mod lookup;
mod property;
mod reader;
