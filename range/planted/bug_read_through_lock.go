//go:build planted && planted_read_through_lock

package planted

const active = ReadThroughLock
