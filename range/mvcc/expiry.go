package mvcc

import "github.com/tidemarkdb/tidemark/hlc"

// A version with an expiry acts like a value and, at the expiry, a tombstone: a read at or above
// the expiry finds the key without a value, and does not look at older versions; a read below finds
// the value. The timestamp of the read decides, and never a clock. So the answer at a timestamp is
// the same on every replica, now and later.
//
// Nothing is written when a version expires. So a check whether something changed between two
// timestamps (ScanOptions.ExpiryUntil, Getter.ViewUncertain) counts an expiry between them as a
// change.

// ExpiredAt reports whether it has a value that reads at or above a timestamp do not see.
func (v *Version) ExpiredAt(at hlc.Timestamp) bool { return v.Expires != 0 && v.Expires <= at.Wall }

// LiveAt reports whether it is a value that a read at a timestamp sees. The timestamp is not below
// the version's.
func (v *Version) LiveAt(at hlc.Timestamp) bool {
	return v.Kind == KindValue && !v.ExpiredAt(at)
}

// asOf makes of a version what a read at a timestamp is to see.
func (v *Version) asOf(at hlc.Timestamp) {
	if v.ExpiredAt(at) {
		v.Kind, v.Value = KindExpired, nil
	}
}

// expiresWithin reports whether a version that a read at a timestamp sees as a value expires after
// that timestamp, at or below a limit, and when.
func (v *Version) expiresWithin(at, limit hlc.Timestamp) (hlc.Timestamp, bool) {
	expiry := hlc.Timestamp{Wall: v.Expires}
	return expiry, v.Expires != 0 && at.Less(expiry) && expiry.LessEq(limit)
}
