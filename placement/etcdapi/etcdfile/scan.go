package etcdfile

import (
	"bytes"
	"cmp"
	"context"
	"encoding/binary"
	"hash/maphash"
	"math"
	"slices"

	"go.etcd.io/etcd/api/v3/mvccpb"
	"google.golang.org/protobuf/encoding/protowire"
	"google.golang.org/protobuf/proto"
)

// scan reads the contents of a file.
type scan struct {
	*File
	ctx      context.Context
	progress func(uint64)
	passed   uint64
	visited  int
	newest   *index
	last     revision
}

// revision is a change: the revision, and the number within it.
type revision struct{ main, number uint64 }

func (r revision) before(o revision) bool {
	return r.main < o.main || r.main == o.main && r.number < o.number
}

// run reads all known buckets. The history comes first, because the keys' leases are looked up when
// keys are sent.
func (s *scan) run(p *pages) error {
	compacted := uint64(0)
	if err := p.buckets([]string{"key", "meta", "lease", "auth", "authUsers", "authRoles",
		grantsBucket},
		func(name string, e element) error {
			if s.visited++; s.visited%1024 == 0 {
				if err := s.ctx.Err(); err != nil {
					return err
				}
				s.progress(s.passed + (p.limit-p.left)*uint64(p.pageSize))
			}
			switch name {
			case "key":
				return s.change(e)
			case "meta":
				if k := string(e.key); k == "finishedCompactRev" || k == "scheduledCompactRev" {
					at, _, err := decodeRevision(e.value)
					compacted = max(compacted, at.main)
					return err
				}
			case "lease":
				return s.lease(e)
			case "auth":
				s.Auth = s.Auth || string(e.key) == "authEnabled" && len(e.value) == 1 && e.value[0] == 1
			case "authUsers":
				return s.user(e)
			case "authRoles":
				return s.role(e)
			case grantsBucket:
				return s.grants(e)
			}
			return nil
		}); err != nil {
		return err
	}
	s.newest = nil
	s.Revision = max(s.last.main, compacted, 1)
	if s.Revision > math.MaxInt64 {
		return damaged("it is at revision %d", s.Revision)
	}
	for i := range s.entries {
		e := &s.entries[i]
		e.current = e.current && s.last.main == s.Revision
	}
	slices.SortFunc(s.Leases, func(a, b Lease) int {
		return cmp.Compare(uint64(a.ID), uint64(b.ID))
	})
	for i := 1; i < len(s.Leases); i++ {
		if s.Leases[i].ID == s.Leases[i-1].ID {
			return damaged("it has lease %d twice", s.Leases[i].ID)
		}
	}
	return s.sort()
}

// change takes a version of a key, in the order of revisions. A version without a key only says
// that the store has reached its revision: `etcdutl snapshot restore --bump-revision` writes such a
// change, and so does Write.
func (s *scan) change(e element) error {
	at, deleted, err := decodeRevision(e.key)
	if err != nil {
		return err
	}
	if !s.last.before(at) || at.main < 2 || at.number > math.MaxUint32 {
		return damaged("revision %d/%d comes after %d/%d", at.main, at.number, s.last.main,
			s.last.number)
	}
	kv := &mvccpb.KeyValue{}
	if err := proto.Unmarshal(e.value, kv); err != nil {
		return damaged("what it has at revision %d: %v", at.main, err)
	}
	if at.main != s.last.main {
		for _, i := range s.newest.current {
			s.entries[i].current = false
		}
		s.newest.current = s.newest.current[:0]
	}
	s.last = at
	if len(kv.Key) == 0 && (deleted || len(e.value) == 0) {
		return nil // it marks the revision that the store has reached
	}
	if len(kv.Key) == 0 || !deleted && (kv.Version < 1 || kv.CreateRevision < 1 ||
		kv.CreateRevision > kv.ModRevision || uint64(kv.ModRevision) != at.main) {
		return damaged("key %q at revision %d has version %d, and was made at revision %d", kv.Key,
			at.main, kv.Version, kv.CreateRevision)
	}
	i := s.newest.find(s.File, kv.Key)
	if i < 0 {
		if len(s.entries) == math.MaxUint32 {
			return damaged("it has too many keys")
		}
		i = len(s.entries)
		s.newest.add(kv.Key, i)
		s.entries = append(s.entries,
			entry{name: int64(len(s.names)), nameSize: uint32(len(kv.Key))})
		s.names = append(s.names, kv.Key...)
	}
	entry := &s.entries[i]
	entry.offset, entry.size = e.offset, uint32(len(e.value))
	entry.number, entry.deleted, entry.current = uint32(at.number), deleted, true
	s.newest.current = append(s.newest.current, i)
	return nil
}

// decodeRevision decodes etcd's revision, and reports whether it is that of a deletion.
func decodeRevision(b []byte) (at revision, deleted bool, err error) {
	if len(b) == revisionKeyLength+1 && b[revisionKeyLength] == tombstoneMark {
		deleted = true
	} else if len(b) != revisionKeyLength {
		return at, false, damaged("%q is no revision", b)
	}
	if b[8] != '_' {
		return at, false, damaged("%q is no revision", b)
	}
	return revision{binary.BigEndian.Uint64(b), binary.BigEndian.Uint64(b[9:])}, deleted, nil
}

// lease decodes etcd's leasepb.Lease.
func (s *scan) lease(e element) error {
	var values [4]uint64
	for rest := e.value; len(rest) > 0; {
		field, kind, n := protowire.ConsumeTag(rest)
		if n < 0 {
			return damaged("a lease: %v", protowire.ParseError(n))
		}
		rest = rest[n:]
		if kind != protowire.VarintType || field > 3 {
			if n = protowire.ConsumeFieldValue(field, kind, rest); n < 0 {
				return damaged("a lease: %v", protowire.ParseError(n))
			}
			rest = rest[n:]
			continue
		}
		if values[field], n = protowire.ConsumeVarint(rest); n < 0 {
			return damaged("a lease: %v", protowire.ParseError(n))
		}
		rest = rest[n:]
	}
	if values[1] == 0 || values[2] == 0 || int64(values[2]) < 0 || int64(values[3]) < 0 {
		return damaged("lease %d has a term of %d s", int64(values[1]), int64(values[2]))
	}
	s.Leases = append(s.Leases, Lease{ID: int64(values[1]), TTL: values[2],
		Left: min(values[3], values[2])})
	return nil
}

// index finds the entry of a key.
type index struct {
	seed maphash.Seed
	// byHash maps a hash to its first entry; others holds entries with equal hashes.
	byHash map[uint64]uint32
	others map[string]uint32
	// current lists the entries that the present revision has changed.
	current []int
}

func newIndex() *index {
	return &index{seed: maphash.MakeSeed(), byHash: map[uint64]uint32{}, others: map[string]uint32{}}
}

// find returns the index of a key's entry; -1 if it has none.
func (x *index) find(f *File, key []byte) int {
	i, ok := x.byHash[maphash.Bytes(x.seed, key)]
	if !ok {
		return -1
	}
	if bytes.Equal(f.name(int(i)), key) {
		return int(i)
	}
	if i, ok = x.others[string(key)]; ok {
		return int(i)
	}
	return -1
}

func (x *index) add(key []byte, i int) {
	hash := maphash.Bytes(x.seed, key)
	if _, taken := x.byHash[hash]; taken {
		x.others[string(key)] = uint32(i)
		return
	}
	x.byHash[hash] = uint32(i)
}
