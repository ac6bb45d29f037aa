//go:build planted && planted_push_ignored

package planted

const active = PushIgnored
