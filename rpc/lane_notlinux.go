//go:build !linux

package rpc

import (
	"net"
	"time"
)

func limitUnacknowledged(net.Conn, time.Duration) {}
