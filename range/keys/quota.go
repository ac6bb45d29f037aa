package keys

import (
	"fmt"

	"github.com/tidemarkdb/tidemark/rpc/clusterpb"
)

// The bounds of the quotas of a keyspace.
const (
	// MaxQuotaBytes bounds a quota of stored bytes, MaxQuotaRate a quota of requests or bytes a
	// second.
	MaxQuotaBytes = 1 << 60
	MaxQuotaRate  = 1 << 40
	// MinQuotaThroughput is the least quota of bytes a second: with less, one large request would use
	// up the quota of hours.
	MinQuotaThroughput = 1 << 10
)

// HasQuota reports whether a keyspace has any quota.
func HasQuota(k *clusterpb.Keyspace) bool { return k.GetQuotaBytes() != 0 || HasRateQuota(k) }

// HasRateQuota reports whether a keyspace has a quota of requests or bytes a second.
func HasRateQuota(k *clusterpb.Keyspace) bool {
	return k.GetQuotaRequestsPerSecond() != 0 || k.GetQuotaBytesPerSecond() != 0
}

// ValidateQuotas returns why a keyspace cannot have its quotas. 0 is none.
func ValidateQuotas(k *clusterpb.Keyspace) error {
	requests, bytes := k.GetQuotaRequestsPerSecond(), k.GetQuotaBytesPerSecond()
	switch {
	case k.GetQuotaBytes() > MaxQuotaBytes:
		return fmt.Errorf("a quota of %d bytes; at most %d", k.GetQuotaBytes(), MaxQuotaBytes)
	case requests > MaxQuotaRate:
		return fmt.Errorf("a quota of %d requests a second; at most %d", requests, MaxQuotaRate)
	case bytes > MaxQuotaRate || bytes != 0 && bytes < MinQuotaThroughput:
		return fmt.Errorf("a quota of %d bytes a second; it is from %d to %d", bytes,
			MinQuotaThroughput, MaxQuotaRate)
	}
	return nil
}

// SizeText is a number of bytes in words: "10 MiB", or "1000 bytes" if it is not a whole number of
// a larger unit.
func SizeText(n uint64) string {
	unit := -1
	for unit+1 < len("KMGT") && n != 0 && n%1024 == 0 {
		n /= 1024
		unit++
	}
	if unit < 0 {
		return fmt.Sprintf("%d bytes", n)
	}
	return fmt.Sprintf("%d %ciB", n, "KMGT"[unit])
}
