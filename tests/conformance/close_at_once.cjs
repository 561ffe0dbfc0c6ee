// Loaded into the suite: its servers end the connections that a client left half open, instead of waiting a minute for them.
// A scenario's verdict is written before its server is closed, so this changes only how long a run takes.
const { Server } = require("node:http");

const close = Server.prototype.close;
Server.prototype.close = function (callback) {
  close.call(this, callback);
  this.closeAllConnections();
  return this;
};
