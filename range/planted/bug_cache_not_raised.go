//go:build planted && planted_cache_not_raised

package planted

const active = CacheNotRaised
