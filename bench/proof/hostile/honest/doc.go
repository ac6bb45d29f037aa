// Package honest is the load of honest clients while hostile ones abuse the servers. It measures
// latencies, and knows which writes were acknowledged.
package honest
