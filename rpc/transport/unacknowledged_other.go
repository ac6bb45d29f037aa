//go:build !linux

package transport

import (
	"syscall"
	"time"
)

func limitUnacknowledged(syscall.RawConn, time.Duration) {}
