// Package drill compares a restored keyspace with the backup that it was restored from, record by
// record.
//
// The backup has the records of a hash keyspace in the order of their hash numbers, and a scan of
// the cluster has them in the order of their keys. So the two are not merged: each record of the
// backup is looked up in the cluster, some hundreds at a time. Then the records of the cluster are
// counted. If there are more than were found, the backup is read again for the ones that it does
// not have; of these readings each looks at a part of the keys, so that memory is bounded.
package drill
