//! The compiled reader of prism_assets: blocks of JSON lines become typed Arrow columns in one pass.
//!
//! The Python way of reading, line by line, defines each rule. This crate gives the same values, reasons, counts and
//! fingerprints. Modules, from the outside in: `python` is the boundary, `block` reads lines into columns, `line` judges
//! one line, `layout` says where columns find their values, `paths` finds those inside of other values, `collect`
//! gathers the keys of columns that name none,
//! `nested` reads structs, lists and maps, `rules` types a value, `route` gives lines to tables, and `scan` knows JSON.
//! `documents` finds records in documents, which then arrive as lines, and `text_lines` divides lines of text into
//! fields, which arrive as lines of JSON. `parquet` decodes stored columns for merges.

#![cfg_attr(not(feature = "python"), allow(dead_code, unused_imports))]

mod block;
mod collect;
mod columns;
mod documents;
mod fingerprint;
mod layout;
mod line;
mod nested;
mod numbers;
mod parquet;
mod paths;
#[cfg(feature = "python")]
mod python;
mod route;
mod rules;
mod scan;
mod text;
mod text_lines;
mod times;
mod undefined;
