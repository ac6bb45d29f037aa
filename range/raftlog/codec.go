package raftlog

import (
	"encoding/binary"
	"errors"
	"fmt"
	"hash/crc32"

	"go.etcd.io/raft/v3/raftpb"

	"github.com/tidemarkdb/tidemark/range/keys"
)

// ErrCorrupt is returned, wrapped with group and index, when a record read back differs from what
// was written.
var ErrCorrupt = errors.New("raft log is corrupt")

var castagnoli = crc32.MakeTable(crc32.Castagnoli)

const recordVersion = 1

// appendEntry encodes an entry: version, type, term (uvarint), data, and a CRC-32C of these and of
// the index.
func appendEntry(dst []byte, e *raftpb.Entry) []byte {
	start := len(dst)
	dst = append(dst, recordVersion, byte(e.GetType()))
	dst = binary.AppendUvarint(dst, e.GetTerm())
	dst = append(dst, e.GetData()...)
	return binary.BigEndian.AppendUint32(dst, entryChecksum(dst[start:], e.GetIndex()))
}

// entrySize is the length of an entry that appendEntry has encoded.
func entrySize(e *raftpb.Entry) int {
	term := 1
	for t := e.GetTerm(); t >= 0x80; t >>= 7 {
		term++
	}
	return 2 + term + len(e.GetData()) + 4
}

func entryChecksum(record []byte, index uint64) uint32 {
	var b [8]byte
	binary.BigEndian.PutUint64(b[:], index)
	return crc32.Update(crc32.Checksum(record, castagnoli), castagnoli, b[:])
}

// decodeEntry decodes what appendEntry made. The data is copied.
func decodeEntry(record []byte, index uint64) (*raftpb.Entry, error) {
	if len(record) < 2+1+4 {
		return nil, fmt.Errorf("entry of %d bytes: %w", len(record), ErrCorrupt)
	}
	body, sum := record[:len(record)-4], binary.BigEndian.Uint32(record[len(record)-4:])
	if got := entryChecksum(body, index); got != sum {
		return nil, fmt.Errorf("entry checksum %08x, expected %08x: %w", got, sum, ErrCorrupt)
	}
	if body[0] != recordVersion {
		return nil, fmt.Errorf("entry of record version %d, this program knows %d: %w", body[0],
			recordVersion, ErrCorrupt)
	}
	if int(body[1]) >= len(raftpb.EntryType_name) {
		return nil, fmt.Errorf("entry of unknown type %d: %w", body[1], ErrCorrupt)
	}
	term, n := binary.Uvarint(body[2:])
	if n <= 0 {
		return nil, fmt.Errorf("entry with a malformed term: %w", ErrCorrupt)
	}
	e := &raftpb.Entry{Index: &index, Term: &term, Type: raftpb.EntryType(body[1]).Enum()}
	if data := body[2+n:]; len(data) > 0 {
		e.Data = append([]byte(nil), data...)
	}
	return e, nil
}

// sealed appends a CRC-32C to a record; unseal verifies and strips it.
func sealed(record []byte) []byte {
	return binary.BigEndian.AppendUint32(record, crc32.Checksum(record, castagnoli))
}

func unseal(record []byte) ([]byte, error) {
	if len(record) < 5 {
		return nil, fmt.Errorf("record of %d bytes: %w", len(record), ErrCorrupt)
	}
	body, sum := record[:len(record)-4], binary.BigEndian.Uint32(record[len(record)-4:])
	if crc32.Checksum(body, castagnoli) != sum {
		return nil, fmt.Errorf("record checksum: %w", ErrCorrupt)
	}
	if body[0] != recordVersion {
		return nil, fmt.Errorf("record version %d, this program knows %d: %w", body[0],
			recordVersion, ErrCorrupt)
	}
	return body[1:], nil
}

func appendUvarints(dst []byte, values ...uint64) []byte {
	for _, v := range values {
		dst = binary.AppendUvarint(dst, v)
	}
	return dst
}

// readUvarints reads len(out) numbers and returns the rest.
func readUvarints(b []byte, out ...*uint64) ([]byte, error) {
	for _, p := range out {
		v, n := binary.Uvarint(b)
		if n <= 0 {
			return nil, fmt.Errorf("truncated record: %w", ErrCorrupt)
		}
		*p, b = v, b[n:]
	}
	return b, nil
}

func encodeHardState(hs *raftpb.HardState) []byte {
	vote := hs.GetVote()
	return sealed(appendUvarints([]byte{recordVersion}, hs.GetTerm(), vote, hs.GetCommit()))
}

func decodeHardState(record []byte) (*raftpb.HardState, error) {
	body, err := unseal(record)
	if err != nil {
		return nil, err
	}
	var term, vote, commit uint64
	rest, err := readUvarints(body, &term, &vote, &commit)
	if err != nil {
		return nil, err
	}
	if len(rest) != 0 {
		return nil, fmt.Errorf("%d bytes behind a hard state: %w", len(rest), ErrCorrupt)
	}
	return &raftpb.HardState{Term: &term, Vote: &vote, Commit: &commit}, nil
}

// truncation describes the last entry that is no longer in the log.
type truncation struct{ index, term uint64 }

func encodeTruncation(t truncation) []byte {
	return sealed(appendUvarints([]byte{recordVersion}, t.index, t.term))
}

func decodeTruncation(record []byte) (truncation, error) {
	var t truncation
	body, err := unseal(record)
	if err != nil {
		return t, err
	}
	rest, err := readUvarints(body, &t.index, &t.term)
	if err == nil && len(rest) != 0 {
		err = fmt.Errorf("%d bytes behind a truncation record: %w", len(rest), ErrCorrupt)
	}
	return t, err
}

// Identity says which replica of a group this log belongs to. It is written when the replica is
// created, and turned into a tombstone when it is removed.
type Identity struct {
	Group   keys.PartitionID
	Replica keys.ReplicaID
	// Removed marks a tombstone: neither this replica id nor a lower one is ever used here again.
	Removed bool
	// Voters are the voters with which the group was founded; empty for a replica that was added
	// later.
	Voters []keys.ReplicaID
	// Descriptor is opaque to this package: what the owner needs to open the replica again.
	Descriptor []byte
}

func encodeIdentity(id Identity) []byte {
	removed := uint64(0)
	if id.Removed {
		removed = 1
	}
	b := appendUvarints([]byte{recordVersion}, uint64(id.Replica), removed, uint64(len(id.Voters)))
	for _, v := range id.Voters {
		b = binary.AppendUvarint(b, uint64(v))
	}
	return sealed(append(b, id.Descriptor...))
}

const maxVoters = 64

func decodeIdentity(group keys.PartitionID, record []byte) (Identity, error) {
	id := Identity{Group: group}
	body, err := unseal(record)
	if err != nil {
		return id, err
	}
	var replica, removed, voters uint64
	if body, err = readUvarints(body, &replica, &removed, &voters); err != nil {
		return id, err
	}
	if removed > 1 || voters > maxVoters {
		return id, fmt.Errorf("identity record: %w", ErrCorrupt)
	}
	id.Replica, id.Removed = keys.ReplicaID(replica), removed == 1
	for range voters {
		var v uint64
		if body, err = readUvarints(body, &v); err != nil {
			return id, err
		}
		id.Voters = append(id.Voters, keys.ReplicaID(v))
	}
	id.Descriptor = append([]byte(nil), body...)
	return id, nil
}
