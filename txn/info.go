package txn

import (
	"bytes"
	"errors"
	"fmt"

	"github.com/tidemarkdb/tidemark/hlc"
	"github.com/tidemarkdb/tidemark/range/keys"
	"github.com/tidemarkdb/tidemark/rpc/kvpb"
	"github.com/tidemarkdb/tidemark/rpc/wire"
)

// Info identifies a transaction attempt and its anchor. An Info never changes.
type Info struct {
	// ID names the attempt.
	ID ID
	// Begun is when the first attempt began. This age decides conflicts.
	Begun hlc.Timestamp
	// Started is when this attempt began. The attempt reads and writes only above Started.
	Started hlc.Timestamp
	// Keyspace and Anchor, a user key, locate the record.
	Keyspace keys.KeyspaceID
	Anchor   []byte
}

// ParseInfo reads the transaction of a request. Fields that no correct client sends are an error.
// The result shares no memory with the message.
func ParseInfo(t *kvpb.Transaction) (Info, error) {
	if t == nil {
		return Info{}, errors.New("the request does not say which transaction it is of")
	}
	id, err := ParseID(t.Id)
	if err != nil {
		return Info{}, err
	}
	i := Info{
		ID: id, Begun: wire.FromTimestamp(t.Begun), Started: wire.FromTimestamp(t.Started),
		Keyspace: keys.KeyspaceID(t.Keyspace), Anchor: bytes.Clone(t.Anchor),
	}
	if err := i.validate(); err != nil {
		return Info{}, fmt.Errorf("transaction %s: %w", id, err)
	}
	return i, nil
}

func (i *Info) validate() error {
	if err := keys.ValidateUserKey(i.Anchor); err != nil {
		return fmt.Errorf("anchor: %w", err)
	}
	return validateAge(i.Begun, i.Started)
}

func validateAge(begun, started hlc.Timestamp) error {
	switch {
	case begun.IsZero():
		return errors.New("it does not say when its first attempt began")
	case started.IsZero():
		return errors.New("it does not say when this attempt began")
	case started.Wall == hlc.MaxTimestamp.Wall:
		return fmt.Errorf("this attempt began at %s, which no clock shows", started)
	case started.Less(begun):
		return fmt.Errorf("this attempt began at %s, before the first one at %s", started, begun)
	}
	return nil
}

// Same reports that both belong to one transaction: they have the same id and the same anchor. The
// id alone proves nothing: clients choose ids, and learn those of others.
func (i *Info) Same(other *Info) bool {
	return i.ID == other.ID && i.SameAnchor(other)
}

// SameAnchor reports that both records lie at one key.
func (i *Info) SameAnchor(other *Info) bool {
	return i.Keyspace == other.Keyspace && bytes.Equal(i.Anchor, other.Anchor)
}

// Proto returns the wire form. It shares the anchor.
func (i Info) Proto() *kvpb.Transaction {
	return &kvpb.Transaction{
		Id: i.ID.Bytes(), Begun: wire.ToTimestamp(i.Begun), Keyspace: uint32(i.Keyspace),
		Anchor: i.Anchor, Started: wire.ToTimestamp(i.Started),
	}
}
