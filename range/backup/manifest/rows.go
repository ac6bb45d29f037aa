package manifest

import (
	"encoding/binary"

	"github.com/tidemarkdb/tidemark/range/keys"
)

// hashWidth is the length of the hash number at the beginning of a row of a hash keyspace.
const hashWidth = 2

// HashRow returns the row of a user key in a hash keyspace.
func HashRow(hash uint32, user []byte) []byte {
	row := make([]byte, hashWidth, hashWidth+len(user))
	binary.BigEndian.PutUint16(row, uint16(hash))
	return append(row, user...)
}

// SplitHashRow splits a row of a hash keyspace into the hash number and the user key. The user key
// aliases the row. It returns false if the row is too short.
func SplitHashRow(row []byte) (hash uint32, user []byte, ok bool) {
	if len(row) < hashWidth {
		return 0, nil, false
	}
	return uint32(binary.BigEndian.Uint16(row)), row[hashWidth:], true
}

// UserKey returns the user key of a row. The result aliases the row.
func (ks *Keyspace) UserKey(row []byte) []byte {
	if !ks.Hashed {
		return row
	}
	_, user, _ := SplitHashRow(row)
	return user
}

// RowsOf returns the spans of rows that correspond to a span of user keys, in order.
func (ks *Keyspace) RowsOf(span keys.Span) (rows []keys.Span) {
	switch {
	case !ks.Hashed:
		return []keys.Span{span.Clone()}
	case len(span.Start) == 0 && len(span.End) == 0:
		return []keys.Span{{}}
	}
	for hash := range ks.Hashes {
		one := keys.Span{Start: HashRow(hash, span.Start)}
		switch {
		case len(span.End) > 0:
			one.End = HashRow(hash, span.End)
		case hash+1 < ks.Hashes:
			one.End = HashRow(hash+1, nil)
		}
		rows = append(rows, one)
	}
	return rows
}

// KeyspaceNamed returns the keyspace with a name, or nil if the backup does not have it.
func (m *Manifest) KeyspaceNamed(name string) *Keyspace {
	for i := range m.Keyspaces {
		if m.Keyspaces[i].Name == name {
			return &m.Keyspaces[i]
		}
	}
	return nil
}
