// Package honest is the load of honest clients beside hostile ones: it measures how long they wait,
// and knows what was acknowledged to them.
package honest
