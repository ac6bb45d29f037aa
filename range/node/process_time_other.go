//go:build !unix

package node

import "time"

// processTime is 0: this system does not provide it.
func processTime() time.Duration { return 0 }
