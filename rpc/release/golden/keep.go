//go:build !golden

package golden

// update: missing files of the newest level are written.
const update = false
