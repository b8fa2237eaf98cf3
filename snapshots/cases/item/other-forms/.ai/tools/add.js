module.exports = {
  description: "Adds two numbers.",
  execute({ a, b }) {
    return a + b;
  },
};
