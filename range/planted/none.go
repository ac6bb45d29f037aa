//go:build !planted

package planted

const active = None
