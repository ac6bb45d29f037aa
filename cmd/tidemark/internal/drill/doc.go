// Package drill compares a restored keyspace with the backup that it was restored from, record by
// record.
//
// The backup has the records of a hash keyspace in the order of their hash numbers. A scan of the
// cluster returns them in the order of their keys. So the two cannot be merged. Instead, each
// record of the backup is looked up in the cluster, some hundreds at a time. Then the records of
// the cluster are counted. If the cluster has more records than were found, the backup is read
// again to find the additional ones. It is read several times, each time for a part of the keys, so
// that memory is limited.
package drill
