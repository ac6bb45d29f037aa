package etcdfile

import (
	"cmp"
	"math"
	"slices"
	"time"

	"go.etcd.io/etcd/api/v3/mvccpb"

	"github.com/tidemarkdb/tidemark/rpc/coordpb"
)

const (
	// A step of an import has at most this size, or one larger key.
	stepBytes   = 1 << 20
	stepEntries = 5000

	// LeastRaise is the default for the least amount by which an import raises the revision: more
	// than a service writes in years.
	LeastRaise = 1_000_000_000
	// MostRevision is the highest revision to which an import may raise the service. Half of the
	// range of signed 64-bit revisions is left, because a revision can never be lowered again.
	MostRevision = math.MaxInt64 / 2
)

// Steps makes the steps of an import of a file.
type Steps struct {
	// Revision is the revision at which the store continues after the import: File.Revision, or
	// above it. In the latter case all revisions of the file are compacted.
	Revision uint64
	// EnableAuth makes the last step enable authentication, for users that were imported before.
	EnableAuth bool
	// WithoutLease counts keys whose lease is not in the file. They are imported without a lease.
	WithoutLease int

	file   *File
	id     uint64
	leases map[int64]bool
}

// Steps makes the steps of the import with that id, which is not 0.
func (f *File) Steps(id uint64) *Steps {
	s := &Steps{Revision: f.Revision, file: f, id: id, leases: map[int64]bool{}}
	for _, l := range f.Leases {
		s.leases[l.ID] = true
	}
	return s
}

// Next returns the step that follows a state of the import, which is empty before the first step.
func (s *Steps) Next(state *coordpb.ImportState) (*coordpb.ImportStep, error) {
	step := &coordpb.ImportStep{Id: s.id, Step: state.Step + 1, Revision: s.Revision,
		Source: s.file.Sum[:]}
	leases := s.file.Leases
	if state.Leases > 0 {
		at, found := slices.BinarySearchFunc(leases, state.LastLease, func(l Lease, id int64) int {
			return cmp.Compare(uint64(l.ID), uint64(id))
		})
		if found {
			at++
		}
		leases = leases[at:]
	}
	for _, l := range leases[:min(stepEntries, len(leases))] {
		step.Leases = append(step.Leases, &coordpb.ImportedLease{Id: l.ID, TtlMillis: l.TTL * 1000,
			LeftMillis: l.Left * 1000})
	}
	if len(leases) > stepEntries {
		return step, nil
	}
	n, size := s.file.Search(state.LastKey), 0
	for ; n < s.file.Len() && len(step.Leases)+len(step.Keys) < stepEntries; n++ {
		if size += s.file.Size(n); size > stepBytes && len(step.Keys) > 0 {
			break
		}
		k, err := s.file.Key(n)
		if err != nil {
			return nil, err
		}
		if k.KV.Version == 0 && s.Revision > s.file.Revision {
			continue // no watch can begin at the revision of the deletion
		}
		step.Keys = append(step.Keys, s.imported(k.KV, k.Number))
	}
	step.End = n == s.file.Len()
	step.EnableAuth = step.End && s.EnableAuth
	return step, nil
}

// ImportedAuth returns the users and roles of the file, in the form of an import.
func (f *File) ImportedAuth() *coordpb.ImportedAuth {
	all := &coordpb.ImportedAuth{}
	for _, r := range f.Roles {
		role := &coordpb.ImportedRole{Name: r.Name}
		for _, p := range r.Permissions {
			role.Permissions = append(role.Permissions, &coordpb.ImportedPermission{
				Type: coordpb.ImportedPermission_Type(p.PermType), Key: p.Key, RangeEnd: p.RangeEnd})
		}
		all.Roles = append(all.Roles, role)
	}
	for _, u := range f.Users {
		all.Users = append(all.Users, &coordpb.ImportedUser{Name: u.Name, Hash: u.Hash,
			Roles: u.Roles})
	}
	return all
}

func (s *Steps) imported(kv *mvccpb.KeyValue, number uint32) *coordpb.ImportedKey {
	lease := kv.Lease
	if lease != 0 && !s.leases[lease] {
		s.WithoutLease++
		lease = 0
	}
	return &coordpb.ImportedKey{Key: kv.Key, CreateRevision: uint64(kv.CreateRevision),
		ModRevision: uint64(kv.ModRevision), Version: uint64(kv.Version), Value: kv.Value,
		Lease: lease, Number: number}
}

// Raised returns the revision at which a service continues after the import of a snapshot, derived
// from the time of the import. No service makes a revision each microsecond, so services that
// import the same snapshot one after the other do not use the same revisions. The numbers stay
// below 2^53, on which clients that read JSON rely, until the year 2255.
func Raised(snapshot uint64, now time.Time) uint64 {
	if micros := now.UnixMicro(); micros > 0 && uint64(micros) <= MostRevision {
		return max(snapshot+LeastRaise, uint64(micros))
	}
	return snapshot + LeastRaise
}
