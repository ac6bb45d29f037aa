//go:build !unix

package serving

func RestrictFiles() {}
