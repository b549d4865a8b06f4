//! The committed C++ headers say what `abi.rs`, `geometry.rs` and `layout.rs` say, and `docs/exchanges.md` what
//! `protocol.rs` says.
//!
//! `SPECDEC_WRITE_HEADERS=1 cargo test -p specdec-core --test generated_headers` rewrites them.
#![allow(clippy::unwrap_used, reason = "a test that cannot read its own repository has failed")]

use std::fmt::Write as _;
use std::mem::{offset_of, size_of};
use std::path::PathBuf;

use specdec_core::abi::{self, HealthHeader, LaunchArgs, LayerDescriptor, SeamWeights, StateGroup};
use specdec_core::event_graph::hops_markdown;
use specdec_core::geometry::{Shard, K3, NANO};
use specdec_core::layout::{Layout, WitnessLayout};
use specdec_core::protocol::Protocol;
use specdec_core::tasks::StepShape;

const NOTE: &str =
    "// Written by crates/specdec-core/tests/generated_headers.rs: change the Rust source, not this file.\n";

fn compare(file: &str, expected: &str) {
    let path = PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("../..").join(file);
    if std::env::var_os("SPECDEC_WRITE_HEADERS").is_some() {
        std::fs::write(&path, expected).unwrap();
    }
    let committed = std::fs::read_to_string(&path).unwrap_or_default();
    assert!(committed == expected, "{file} is stale: run this test with SPECDEC_WRITE_HEADERS=1");
}

#[test]
fn abi_header_is_current() {
    let mut config = cbindgen::Config {
        language: cbindgen::Language::Cxx,
        namespaces: Some(vec!["specdec".into(), "abi".into()]),
        no_includes: true,
        documentation: false,
        ..cbindgen::Config::default()
    };
    config.constant.allow_constexpr = true;
    config.export.include = [
        "LayerKind",
        "Stage",
        "FailureReason",
        "FailureRecord",
        "HealthHeader",
        "LaunchArgs",
        "LayerDescriptor",
        "StateGroup",
        "StageTasks",
    ]
    .map(String::from)
    .to_vec();
    let source = PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("src/abi.rs");
    let bindings = cbindgen::Builder::new().with_config(config).with_src(source).generate().unwrap();
    let mut text = Vec::new();
    bindings.write(&mut text);
    let mut out = format!("{NOTE}#pragma once\n#include \"specdec/types.hpp\"\n\n");
    // The hash is a computed constant, which the generator cannot print.
    let _ = writeln!(out, "#define SPECDEC_ABI_HASH 0x{:016x}\n", abi::ABI_HASH);
    out.push_str(String::from_utf8(text).unwrap().trim_start());
    out.push_str("\nnamespace specdec::abi {\n");
    macro_rules! offsets {
        ($($type:ident: $($field:ident),*;)*) => {$(
            let _ = writeln!(out, "static_assert(sizeof({}) == {});", stringify!($type), size_of::<$type>());
            $(let _ = writeln!(out, "static_assert(__builtin_offsetof({}, {}) == {});",
                stringify!($type), stringify!($field), offset_of!($type, $field));)*
        )*};
    }
    offsets! {
        SeamWeights: norm, logit, output, eps, output_eps;
        LayerDescriptor: attention_seam, mlp_seam, in_proj, f_b, conv, a_log, dt_bias, o_norm, o_proj, router,
            router_bias, latent_down, shared_gate_up, shared_down, w13, w13_scale, w2, w2_scale, latent_norm, up,
            conv_state, conv_slot_stride, conv_channel_stride, conv_token_stride, recurrent_state,
            recurrent_slot_stride, num_slots, state_group, kind, layer, num_blocks, block_write, gate_lower_bound,
            o_norm_eps, latent_eps;
        HealthHeader: failed, epoch, busy, step;
        StateGroup: state_indices, num_accepted, row_stride;
        LaunchArgs: layers, groups, stages, scratch, peers, health, abort, witness, prefix, blocks, delta,
            core, blocks_row_stride, block_stride, timeout_ticks, num_layers, rows, rows_per_request,
            requests, rank, grid, flags;
    }
    out.push_str("}  // namespace specdec::abi\n");
    compare("kernels/include/specdec/abi_generated.hpp", &out);
}

fn camel(name: &str) -> String {
    name.split(['_', '-']).map(|part| part[..1].to_uppercase() + &part[1..]).collect()
}

fn describe(shard: &Shard) -> String {
    let geometry = &shard.geometry;
    let mut out = String::new();
    let name = format!("{}Tp{}", camel(geometry.build), shard.ranks);
    let _ = writeln!(out, "\nstruct {name} {{");
    for (constant, value) in [
        ("Ranks", shard.ranks),
        ("Hidden", geometry.hidden),
        ("Heads", shard.heads()),
        ("HeadDim", geometry.head_dim),
        ("Proj", shard.proj()),
        ("InProjRows", shard.in_proj_rows()),
        ("Experts", geometry.experts),
        ("TopK", geometry.top_k),
        ("RouterRows", shard.router_rows()),
        ("LatentWidth", geometry.latent),
        ("LatentRows", shard.latent_rows()),
        ("UpRows", shard.up_rows()),
        ("Inter", shard.inter()),
        ("Groups", shard.groups()),
        ("Shared", shard.shared()),
        ("Slices", shard.slices()),
        ("LatentSlices", shard.latent_slices()),
        ("Chunks", shard.chunks()),
    ] {
        let _ = writeln!(out, "  static constexpr uint32_t k{constant} = {value};");
    }
    let layout = Layout::new(shard);
    for place in &layout.places {
        let region = camel(place.region.name());
        let _ = writeln!(out, "  static constexpr uint32_t k{region}Data = {};", place.data);
        if let Some(flags) = place.flags {
            let _ = writeln!(out, "  static constexpr uint32_t k{region}Flags = {flags};");
        }
    }
    let witness = WitnessLayout::new(shard);
    for (field, value) in [
        ("Mix", witness.mix),
        ("Picks", witness.picks),
        ("PickWeights", witness.pick_weights),
        ("Codes", witness.codes),
        ("Scales", witness.scales),
        ("Bytes", witness.bytes),
    ] {
        let _ = writeln!(out, "  static constexpr uint32_t kWitness{field} = {value};");
    }
    let _ = writeln!(out, "  static constexpr uint32_t kPeerHalfBytes = {};\n}};", layout.peer_half_bytes);
    out
}

#[test]
fn geometry_header_is_current() {
    let mut out = format!("{NOTE}#pragma once\n#include \"specdec/types.hpp\"\n\nnamespace specdec::geometry {{\n");
    for (geometry, ranks) in [(&K3, 8), (&NANO, 2), (&NANO, 1)] {
        out.push_str(&describe(&geometry.shard(ranks).unwrap()));
    }
    out.push_str("\n}  // namespace specdec::geometry\n");
    compare("kernels/include/specdec/geometry_generated.hpp", &out);
}

#[test]
fn exchange_table_is_current() {
    let table = Protocol::shipped().markdown();
    let hops = hops_markdown(&K3.shard(8).unwrap(), StepShape::new(2, 3).unwrap()).unwrap();
    let page = format!(
        "# Exchanges\n\nWho waits for what, reads and writes, by stage: `crates/specdec-core/src/protocol.rs`, from which \
         `specdec-core::event_graph` proves every task table. Written by \
         `crates/specdec-core/tests/generated_headers.rs`.\n\n{}\n\n\
         ## Hops\n\nThe longest chain of exchanges in one layer of Kimi-K3 on 8 ranks, at any width, as \
         `kimi-k3-specdec kernels count` prints it; several regions that one stage waits for are one hop.\n\n{}\n",
        table.trim_end(),
        hops.trim_end()
    );
    compare("docs/exchanges.md", &page);
}
