package archive

import (
	"crypto/sha256"
	"encoding/hex"
)

// Sum identifies sealed bytes, in manifests for example. Sums are comparable with ==.
type Sum struct {
	// SHA256 is in hexadecimal digits.
	SHA256 string `json:"sha256"`
	// Size is in bytes.
	Size int64 `json:"size"`
}

// SumOf returns the Sum of sealed bytes.
func SumOf(data []byte) Sum {
	digest := sha256.Sum256(data)
	return Sum{SHA256: hex.EncodeToString(digest[:]), Size: int64(len(data))}
}

// Check returns ErrCorrupt if the Sum of the data is another one.
func (s Sum) Check(data []byte) error {
	if int64(len(data)) != s.Size {
		return corrupt("it has %d bytes, and should have %d", len(data), s.Size)
	}
	if found := SumOf(data); found != s {
		return corrupt("the SHA-256 of the %d bytes is %s, and should be %s", len(data), found.SHA256,
			s.SHA256)
	}
	return nil
}
