// A module beside a tool may be CommonJS.
module.exports = { double: (n) => n * 2 };
