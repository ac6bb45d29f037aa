package archive

import (
	"bytes"
	"encoding/json"
	"strings"

	"github.com/tidemarkdb/tidemark/hlc"
)

const (
	// MaxSealed is the size of the largest sealed piece or blob.
	MaxSealed = 128 << 20
	// MaxPayload is the size of the largest payload before compression.
	MaxPayload = 256 << 20
	// maxHeader bounds the header of a piece, as JSON. Start and End may be as long as keys.
	maxHeader = 64 << 10
	// maxKind is the length of the longest kind.
	maxKind = 64
)

// Header says what a piece contains.
type Header struct {
	// Kind is a word that the caller chooses: a-z, 0-9 and hyphens.
	Kind string
	// Backup is the id of the backup. Sequence is the number of the piece in the backup.
	Backup   string
	Sequence uint64
	// KeyspaceID and Keyspace are the id and the name of the keyspace that the keys belong to.
	KeyspaceID uint32
	Keyspace   string
	// Partition is the number of the partition in a hash keyspace; nil in a range keyspace.
	Partition *uint32
	// Start and End bound the keys: Start <= key < End. An empty End is no bound.
	Start, End []byte
	// After and At bound the timestamps: After < timestamp <= At. At is not zero.
	After, At hlc.Timestamp
}

// headerJSON is the JSON form of a Header. Timestamps are text, because some readers of JSON do not
// keep all digits of a large number.
type headerJSON struct {
	Kind       string  `json:"kind"`
	Backup     string  `json:"backup"`
	Sequence   uint64  `json:"sequence"`
	KeyspaceID uint32  `json:"keyspace_id"`
	Keyspace   string  `json:"keyspace"`
	Partition  *uint32 `json:"partition,omitempty"`
	Start      []byte  `json:"start,omitempty"`
	End        []byte  `json:"end,omitempty"`
	After      string  `json:"after"`
	At         string  `json:"at"`
}

// MarshalJSON implements json.Marshaler.
func (h Header) MarshalJSON() ([]byte, error) {
	return json.Marshal(headerJSON{h.Kind, h.Backup, h.Sequence, h.KeyspaceID, h.Keyspace, h.Partition,
		h.Start, h.End, h.After.String(), h.At.String()})
}

// UnmarshalJSON implements json.Unmarshaler.
func (h *Header) UnmarshalJSON(data []byte) error {
	var j headerJSON
	if err := json.Unmarshal(data, &j); err != nil {
		return err
	}
	after, err := hlc.Parse(j.After)
	if err != nil {
		return err
	}
	at, err := hlc.Parse(j.At)
	if err != nil {
		return err
	}
	*h = Header{j.Kind, j.Backup, j.Sequence, j.KeyspaceID, j.Keyspace, j.Partition, j.Start, j.End,
		after, at}
	return nil
}

// check returns an error if the header is not valid.
func (h Header) check() error {
	switch {
	case checkKind(h.Kind) != nil:
		return checkKind(h.Kind)
	case len(h.Start) > MaxKey || len(h.End) > MaxKey+1:
		return invalid("the span of a piece has a bound that is longer than a key")
	case len(h.End) > 0 && bytes.Compare(h.Start, h.End) >= 0:
		return invalid("the span of a piece is empty: it begins at %q and ends at %q", h.Start, h.End)
	case h.After.Wall < 0 || h.At.IsZero() || h.At.Wall < 0 || h.At.Less(h.After):
		return invalid("a piece has no timestamps between %v and %v", h.After, h.At)
	}
	return nil
}

// contains reports whether a key is in the header's span.
func (h Header) contains(key []byte) bool {
	return bytes.Compare(key, h.Start) >= 0 && (len(h.End) == 0 || bytes.Compare(key, h.End) < 0)
}

// checkKind returns an error if the kind of a piece or blob is not valid.
func checkKind(kind string) error {
	if kind == "" || len(kind) > maxKind ||
		strings.Trim(kind, "abcdefghijklmnopqrstuvwxyz0123456789-") != "" {
		return invalid("the kind %.80q; it has a-z, 0-9 and hyphens, at most %d", kind, maxKind)
	}
	return nil
}
