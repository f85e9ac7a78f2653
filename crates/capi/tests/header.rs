//! The committed header is the one that the source gives.

use std::path::Path;

/// The modules with functions, in the order in which the header shows them.
const MODULES: [&str; 12] = [
    "outcome",
    "codes",
    "options",
    "session",
    "group",
    "collective",
    "start",
    "request",
    "transfer",
    "shared",
    "store",
    "monitor",
];

fn generated(root: &Path) -> String {
    let config = cbindgen::Config::from_file(root.join("cbindgen.toml")).unwrap();
    let mut builder = cbindgen::Builder::new().with_config(config);
    for module in MODULES.into_iter().chain(["log"]) {
        builder = builder.with_src(root.join(format!("src/{module}.rs")));
    }
    let mut text = Vec::new();
    builder
        .generate()
        .expect("a header from the source")
        .write(&mut text);
    String::from_utf8(text).unwrap()
}

#[test]
fn header_is_up_to_date() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR"));
    let path = root.join("include/carole.h");
    let generated = generated(root);
    if std::env::var_os("UPDATE_HEADER").is_some() {
        std::fs::write(&path, &generated).unwrap();
        return;
    }
    let committed = std::fs::read_to_string(&path).unwrap_or_default();
    assert!(
        committed == generated,
        "crates/capi/include/carole.h is not what the source gives; make it anew with\n\
         UPDATE_HEADER=1 cargo test -p carole-capi header"
    );
}

#[test]
fn header_declares_every_function_and_states_every_in_place_rule() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR"));
    let header = generated(root);
    let mut functions = 0;
    for entry in std::fs::read_dir(root.join("src")).unwrap() {
        let source = std::fs::read_to_string(entry.unwrap().path()).unwrap();
        for name in source.split("extern \"C\" fn carole_").skip(1) {
            let name = name.split('(').next().unwrap();
            assert!(
                header.contains(&format!(" carole_{name}("))
                    || header.contains(&format!("*carole_{name}(")),
                "{name}"
            );
            functions += 1;
        }
    }
    assert!(functions > 50, "{functions} functions were found");
    let rules = header.matches("* In place:").count() + header.matches("* Not in place:").count();
    // One for each collective that moves data, consensus and barrier aside.
    assert_eq!(rules, 11);
    assert!(header.contains(&format!("CAROLE_VERSION \"{}\"", env!("CARGO_PKG_VERSION"))));
    assert!(
        !header.contains("_number"),
        "numbers are shown as their enums"
    );
}
