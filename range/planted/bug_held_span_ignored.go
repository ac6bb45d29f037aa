//go:build planted && planted_held_span_ignored

package planted

const active = HeldSpanIgnored
